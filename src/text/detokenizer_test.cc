#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "text/random_text.h"
#include "text/small_vocabulary.h"
#include "text/utf8.h"

namespace kvasir {
namespace {

std::string StreamAll(Detokenizer* detokenizer, const std::vector<TokenId>& tokens) {
  std::string out;
  for (const TokenId id : tokens) {
    const std::string_view piece = detokenizer->Append(id);
    EXPECT_FALSE(FindInvalidUtf8(piece)) << "half a character was shown";
    out += piece;
  }
  out += detokenizer->Finish();
  return out;
}

TEST(Detokenizer, HoldsBackHalfACharacter) {
  const auto t = SmallSpmVocabulary().Create();
  Detokenizer d(t.get());
  EXPECT_EQ(d.Append(*t->Find("a")), "a");
  EXPECT_EQ(d.Append(*t->Find("<0xF0>")), "");
  EXPECT_EQ(d.Append(*t->Find("<0x9F>")), "");
  EXPECT_EQ(d.Append(*t->Find("<0x8E>")), "");
  EXPECT_EQ(d.Append(*t->Find("<0x89>")), "\xF0\x9F\x8E\x89");
  EXPECT_EQ(d.Finish(), "");
}

TEST(Detokenizer, ReplacesWhatCannotBecomeACharacter) {
  const auto t = SmallSpmVocabulary().Create();
  Detokenizer d(t.get());
  EXPECT_EQ(d.Append(*t->Find("<0xF0>")), "");
  EXPECT_EQ(d.Append(*t->Find("<0x9F>")), "");
  EXPECT_EQ(d.Append(*t->Find("a")),
            "\xEF\xBF\xBD"
            "a")
      << "one maximal subpart";
  EXPECT_EQ(d.Append(*t->Find("<0x80>")), "\xEF\xBF\xBD");
  EXPECT_EQ(d.Append(*t->Find("<0xE2>")), "");
  EXPECT_EQ(d.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(d.Finish(), "");
  EXPECT_EQ(d.Append(*t->Find("b")), "b");
}

TEST(Detokenizer, LeadingSpaceDependsOnWhereTheStreamStands) {
  const auto t = SmallSpmVocabulary(/*add_space_prefix=*/true).Create();
  const TokenId world = *t->Find("\xE2\x96\x81world");
  EXPECT_EQ(Detokenizer(t.get()).Append(world), " world") << "continues a text";
  Detokenizer start(t.get(), {.starts_text = true});
  EXPECT_EQ(start.Append(world), "world");
  EXPECT_EQ(start.Append(world), " world");
  EXPECT_EQ(start.Append(*t->Find("<end_of_turn>")), "");
  EXPECT_EQ(start.Append(world), "world");
  const auto plain = SmallSpmVocabulary(/*add_space_prefix=*/false).Create();
  EXPECT_EQ(Detokenizer(plain.get(), {.starts_text = true}).Append(world), " world");
}

TEST(Detokenizer, ControlTokensOnRequest) {
  const auto t = SmallBpeVocabulary().Create();
  const TokenId end = *t->Find("<|im_end|>");
  EXPECT_EQ(Detokenizer(t.get()).Append(end), "");
  EXPECT_EQ(Detokenizer(t.get(), {.special = true}).Append(end), "<|im_end|>");
  EXPECT_EQ(Detokenizer(t.get()).Append(TokenId{1 << 20}), "") << "a logits row beyond the tokens";
}

TEST(DetokenizerProperty, PiecesEqualTheWholeDecode) {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(SmallBpeVocabulary().Create());
  tokenizers.push_back(SmallSpmVocabulary(false).Create());
  tokenizers.push_back(SmallSpmVocabulary(true).Create());
  for (const uint64_t seed : TestSeeds(500)) {
    SCOPED_TRACE(fmt::format("KVASIR_TEST_SEED={}", seed));
    Rng rng(seed);
    for (const auto& t : tokenizers) {
      // Encoded text, and any tokens at all, byte tokens that fit nowhere included.
      std::vector<TokenId> tokens = t->Encode(RandomText(&rng, 10), {.parse_special = true});
      for (uint64_t i = rng.Below(20); i > 0; --i) {
        const size_t at = rng.Below(tokens.size() + 1);
        tokens.insert(tokens.begin() + static_cast<std::ptrdiff_t>(at),
                      TokenId{static_cast<int32_t>(rng.Below(t->vocab_size() + 3))});
      }
      const bool special = rng.Below(2) == 0;
      Detokenizer d(t.get(), {.special = special, .starts_text = true});
      const std::string whole = RepairUtf8(t->Decode(tokens, {.special = special}));
      ASSERT_EQ(StreamAll(&d, tokens), whole);
      ASSERT_EQ(StreamAll(&d, tokens), whole) << "Finish begins anew";
      d.Reset({.special = !special, .starts_text = true});
      ASSERT_EQ(StreamAll(&d, tokens), RepairUtf8(t->Decode(tokens, {.special = !special})));
    }
  }
}

}  // namespace
}  // namespace kvasir
