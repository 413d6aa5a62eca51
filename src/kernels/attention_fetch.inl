// The beginning of the next job, on its way while this one computes. Included inside attention.inl.

// Fetches half of one of the next job's first K units. A little at a time wherever no tile runs:
// memory would lie idle there, while more at once would keep the tiles' own loads waiting.
inline void FetchAhead(const AttentionJob& job, int unit) {
  const uint16_t* const k = job.after[unit];
  if (k == nullptr || job.k_type != StoredType::kF16) return;
  for (int i = 0; i < job.head_dim * 8; i += 32) __builtin_prefetch(k + i, 0, 2);
}
