// Soft caps of attention scores. Included inside attention.inl, after Work.

// Scores of each row's own units scaled and capped, in place.
void CapScores(Work& work) {
  const AttentionJob& job = work.job;
  if (!(job.cap > 0.0f)) return;
  const V by = Set1(job.scale / job.cap);
  const V cap = Set1(job.cap);
  for (int row = 0; row < job.rows; ++row) {
    if (job.begin[row] >= job.end[row]) continue;
    float* p = PRow(work, row);
    for (int t = job.begin[row] / 16 * 16; t < job.end[row]; t += 16) {
      Store(p + t, Mul(cap, Tanh(Mul(Load(p + t), by))));
    }
  }
}
