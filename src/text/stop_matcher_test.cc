#include "text/stop_matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/check.h"
#include "base/rng.h"

namespace kvasir {
namespace {

StopMatcher Make(const std::vector<std::string>& stops) {
  StatusOr<StopMatcher> matcher = StopMatcher::Create(stops);
  KV_CHECK(matcher.ok());
  return std::move(matcher).value();
}

struct Outcome {
  std::string text;
  std::optional<size_t> matched;
  bool operator==(const Outcome&) const = default;
};

// The definition: at the first end of a stop string, the longest that ends there.
Outcome Naive(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      if (end < stops[i].size()) continue;
      if (text.compare(end - stops[i].size(), stops[i].size(), stops[i]) != 0) continue;
      if (!best || stops[i].size() > stops[*best].size()) best = i;
    }
    if (best) return {text.substr(0, end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

// How much of the end of `text` may still become a stop string.
size_t NaiveHeld(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t length = text.size(); length > 0; --length) {
    for (const std::string& stop : stops) {
      if (length < stop.size() &&
          stop.compare(0, length, text, text.size() - length, length) == 0) {
        return length;
      }
    }
  }
  return 0;
}

TEST(StopMatcher, FindsAcrossPieces) {
  StopMatcher m = Make({"END", "\n\n"});
  EXPECT_EQ(m.Feed("some text E").emit, "some text ");
  EXPECT_EQ(m.held_bytes(), 1u);
  EXPECT_EQ(m.Feed("N").emit, "");
  const StopMatcher::Result result = m.Feed("D and more");
  EXPECT_EQ(result.emit, "");
  EXPECT_EQ(result.matched, 0u);
  EXPECT_EQ(m.Feed("more").emit, "");
  EXPECT_EQ(m.Feed("more").matched, 0u);
  EXPECT_EQ(m.Flush(), "");
}

TEST(StopMatcher, ReleasesWhatWasNoStop) {
  StopMatcher m = Make({"abcd"});
  EXPECT_EQ(m.Feed("xabc").emit, "x");
  EXPECT_EQ(m.Feed("ab").emit, "abc") << "abc is clear now, ab may begin one";
  EXPECT_EQ(m.Flush(), "ab");
  EXPECT_EQ(m.Flush(), "");
  m.Reset();
  EXPECT_EQ(m.Feed("abc").emit, "");
  EXPECT_EQ(m.Feed("d").matched, 0u);
  m.Reset();
  EXPECT_EQ(m.Feed("q").emit, "q");
}

TEST(StopMatcher, FirstToEndWinsAndLongestOfThose) {
  EXPECT_EQ(Make({"abcd", "bc"}).Feed("abcd").matched, 1u);
  EXPECT_EQ(Make({"c", "bc"}).Feed("abc").matched, 1u);
  EXPECT_EQ(Make({"bc", "c", "bc"}).Feed("abc").matched, 0u) << "of equal ones the first";
  EXPECT_EQ(Make({"a", "ab"}).Feed("ab").matched, 0u);
}

TEST(StopMatcher, WithoutStopsEverythingPasses) {
  StopMatcher m = Make({});
  EXPECT_EQ(m.Feed("abc").emit, "abc");
  EXPECT_EQ(m.Flush(), "");
}

TEST(StopMatcher, RefusesEmptyAndHugeStops) {
  const std::vector<std::string> empty = {"a", ""};
  EXPECT_EQ(MessageOf(StopMatcher::Create(empty).status()), "stop string 2 is empty");
  const std::vector<std::string> huge = {std::string(StopMatcher::kMaxTotalBytes + 1, 'a')};
  EXPECT_FALSE(StopMatcher::Create(huge).ok());
}

TEST(StopMatcherProperty, AgreesWithTheDefinitionHoweverTheTextIsCut) {
  int matches = 0;
  for (const uint64_t seed : TestSeeds(5000)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Rng rng(seed);
    const auto word = [&](size_t length) {
      std::string out;
      for (size_t i = 0; i < length; ++i) out += static_cast<char>('a' + rng.Below(2));
      return out;
    };
    std::vector<std::string> stops(rng.Below(5));
    for (std::string& stop : stops) stop = word(1 + rng.Below(7));
    const std::string text = word(rng.Below(40));
    const Outcome expected = Naive(stops, text);
    matches += expected.matched.has_value();

    StopMatcher m = Make(stops);
    Outcome got;
    for (size_t begin = 0; begin < text.size();) {
      const size_t length = std::min<size_t>(rng.Below(5), text.size() - begin);
      const StopMatcher::Result result = m.Feed(text.substr(begin, length));
      got.text += result.emit;
      begin += length;
      if (result.matched) {
        got.matched = result.matched;
        break;
      }
      ASSERT_EQ(m.held_bytes(), NaiveHeld(stops, text.substr(0, begin))) << "no more, no less";
    }
    got.text += m.Flush();
    ASSERT_EQ(got, expected) << text;
  }
  EXPECT_GT(matches, 500);
}

}  // namespace
}  // namespace kvasir
