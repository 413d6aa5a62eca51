// NearestName: "did you mean": the known name that a mistyped one most likely stands for.
#ifndef KVASIR_APP_NEAREST_NAME_H_
#define KVASIR_APP_NEAREST_NAME_H_

#include <string>
#include <string_view>
#include <vector>

namespace kvasir {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`.
int EditDistance(std::string_view a, std::string_view b);

// The nearest of `known` (the first of equals), or empty when none is near enough to be meant:
// more than half of the typed characters would have to change.
std::string NearestName(std::string_view typed, const std::vector<std::string>& known);

// "; did you mean NAME?", or empty.
std::string DidYouMean(std::string_view typed, const std::vector<std::string>& known);

}  // namespace kvasir

#endif  // KVASIR_APP_NEAREST_NAME_H_
