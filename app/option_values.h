// Option values that are more than a number or a name: sizes, lists of ids, biases.
//
// Each Parse function has a *Problem twin in the form that CLI11's checks want: empty when fine.
#ifndef KVASIR_APP_OPTION_VALUES_H_
#define KVASIR_APP_OPTION_VALUES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace kvasir {

// "1048576", "512K", "1.5G", "2GiB", "100MB": powers of 1024 in every spelling. At least 1 byte.
StatusOr<uint64_t> ParseByteSize(std::string_view text);
std::string ByteSizeProblem(const std::string& text);

// The parts of "a,b,c": views of `text`, as many as commas and one.
std::vector<std::string_view> SplitList(std::string_view text);

// "1,2,3"; blanks are allowed around numbers. At least one.
StatusOr<std::vector<int64_t>> ParseIntegers(std::string_view text);

// Token ids: integers that fit an id; whether the vocabulary has them is checked later.
StatusOr<std::vector<TokenId>> ParseTokenIds(std::string_view text);
std::string TokenIdsProblem(const std::string& text);

// Counts in [1, 2^31).
StatusOr<std::vector<uint32_t>> ParseCounts(std::string_view text);
std::string CountsProblem(const std::string& text);

// "ID:BIAS"; BIAS may be -inf.
StatusOr<std::pair<TokenId, float>> ParseLogitBias(std::string_view text);
std::string LogitBiasProblem(const std::string& text);

// "avx512", "avx2", "scalar", and supported by this CPU.
std::string IsaProblem(const std::string& text);

// kInvalidArgument naming position and value of the first id outside [0, vocab_size).
Status CheckTokenIds(const std::vector<TokenId>& ids, uint32_t vocab_size);

}  // namespace kvasir

#endif  // KVASIR_APP_OPTION_VALUES_H_
