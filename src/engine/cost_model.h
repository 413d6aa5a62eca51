// CostModel: predicts how long a step takes, so that a chunk of a long prompt can be sized to keep
// the gap between two tokens of a running stream bounded.
//
// A row costs its share of the matrices plus attention over the tokens before it:
//   cost(row at depth d) = linear_macs + attention_macs * d   [int8 multiply-accumulates, and what
//                                                               takes as long as one]
// The rate is learned on line from measured steps (exponential average); before the first
// measurement a cautious guess stands in. How much of a row's time is attention is learned apart
// from it, from steps of prompts alone. Deterministic: a function of what it was told.
// Thread: engine thread.
#ifndef KVASIR_ENGINE_COST_MODEL_H_
#define KVASIR_ENGINE_COST_MODEL_H_

#include <cstdint>

#include "base/clock.h"

namespace kvasir {

class CostModel {
 public:
  struct Options {
    double linear_macs = 1e8;       // Per row, all layers.
    double attention_macs = 3.5e4;  // Per row and token of context.
    double initial_macs_per_us = 5e4;
  };
  explicit CostModel(const Options& options);

  // Work of `rows` consecutive rows that begin at `depth` tokens of context.
  double RowsCost(uint32_t rows, uint32_t depth) const;

  // The most rows from `depth` on, at most `limit`, whose time stays within `budget_us`; may be 0.
  uint32_t RowsWithin(double budget_us, uint32_t depth, uint32_t limit) const;

  double MicrosecondsFor(double cost) const { return cost / macs_per_us_; }

  // A step of this total cost took that long. Steps of few rows are bound by memory, not by work,
  // and say nothing about the rate: they are ignored.
  void Observe(double cost, uint32_t rows, TimeUs elapsed_us);

  double macs_per_us() const { return macs_per_us_; }

  // A step of nothing but `rows` rows of prompts, of this total cost, took that long.
  void ObservePrompts(double cost, uint32_t rows, TimeUs elapsed_us);

  // What a row costs for each token before it, as a share of what one at depth 0 costs: as the
  // options say until measured, and never more than 8 times away from that.
  double depth_cost() const;

 private:
  Options options_;
  double macs_per_us_;
  // Sums over the steps of prompts, older ones fading: rows r, pairs of a row and a token before it
  // p, microseconds t. time = a * r + b * p by least squares.
  double rr_ = 0, rp_ = 0, pp_ = 0, rt_ = 0, pt_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_COST_MODEL_H_
