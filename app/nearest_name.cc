#include "nearest_name.h"

#include <fmt/core.h>

#include <algorithm>

namespace kvasir {

int EditDistance(std::string_view a, std::string_view b) {
  const size_t columns = b.size() + 1;
  std::vector<int> cost((a.size() + 1) * columns);
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      int& here = cost[i * columns + j];
      if (i == 0 || j == 0) {
        here = static_cast<int>(i + j);
        continue;
      }
      const int substitution = cost[(i - 1) * columns + j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      here =
          std::min({substitution, cost[(i - 1) * columns + j] + 1, cost[i * columns + j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        here = std::min(here, cost[(i - 2) * columns + j - 2] + 1);
      }
    }
  }
  return cost.back();
}

std::string NearestName(std::string_view typed, const std::vector<std::string>& known) {
  std::string nearest;
  int smallest = 1 + static_cast<int>(typed.size()) / 2;
  for (const std::string& name : known) {
    const int distance = EditDistance(typed, name);
    if (distance < smallest) {
      smallest = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string DidYouMean(std::string_view typed, const std::vector<std::string>& known) {
  const std::string nearest = NearestName(typed, known);
  return nearest.empty() ? std::string() : fmt::format("; did you mean {}?", nearest);
}

}  // namespace kvasir
