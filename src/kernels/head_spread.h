// Spreading: a fixed rotation of a head's channels that shares every channel's magnitude out to all
// of its group, so that the few channels which are large in every token do not set the scale by
// which all of them are rounded. What is quantized is rotated first: keys together with the
// queries that meet them, which leaves their products as they are, and values, whose weighted sums
// are rotated back.
//
// Each whole group of 64 channels (kScaleGroup, which share a scale) is multiplied by the Walsh-
// Hadamard matrix over 8; what is left of a narrower head by those of 32 and of 16 channels over
// their square roots. The matrix is symmetric and its own inverse, so spreading twice gives the
// head back, but for rounding.
// Numerics: additions in a fixed order, the same on every machine; relative to the group's norm the
// error is below 1e-6. NaN and infinity make the whole group NaN or infinite. Thread: pure.
// Source: Ashkboos et al. 2024, arXiv:2404.00456.
#ifndef KVASIR_KERNELS_HEAD_SPREAD_H_
#define KVASIR_KERNELS_HEAD_SPREAD_H_

#include <span>

namespace kvasir {

// In place. REQUIRES: a multiple of 16 channels.
void SpreadHead(std::span<float> head);

}  // namespace kvasir

#endif  // KVASIR_KERNELS_HEAD_SPREAD_H_
