#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "text/bpe_encoder.h"
#include "text/small_vocabulary.h"
#include "text/spm_encoder.h"

namespace kvasir {
namespace {

using ::testing::ElementsAre;

// Token texts, which read better than ids.
std::vector<std::string> Texts(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  std::vector<std::string> out;
  for (const TokenId id : tokens) out.emplace_back(tokenizer.vocabulary().text(id));
  return out;
}

const std::string kGap = "\xC4\xA0";       // How byte-level BPE spells a space.
const std::string kMark = "\xE2\x96\x81";  // How SentencePiece spells one.

TEST(ByteLevelBpe, MergesByRankNotByLength) {
  const auto t = SmallBpeVocabulary().Create();
  const auto encode = [&](std::string_view text) { return Texts(*t, t->Encode(text)); };
  EXPECT_THAT(encode("hello world"), ElementsAre("hello", kGap + "world"));
  EXPECT_THAT(encode("held"), ElementsAre("he", "ld"));
  // "a a" goes before "a b" and "b a", leftmost first.
  EXPECT_THAT(encode("aaab"), ElementsAre("aaa", "b"));
  EXPECT_THAT(encode("aab"), ElementsAre("aab"));
  EXPECT_THAT(encode("abab"), ElementsAre("abab"));
  EXPECT_THAT(encode("aaaaaaa"), ElementsAre("aaaa", "aaa"));
  EXPECT_THAT(encode(""), ElementsAre());
}

TEST(ByteLevelBpe, WordsAreNotMergedAcross) {
  const auto t = SmallBpeVocabulary().Create();
  // "l" + "l" would merge, if the apostrophe-s were not a word of its own.
  EXPECT_THAT(Texts(*t, t->Encode("l'sl")), ElementsAre("l", "'s", "l"));
  EXPECT_THAT(Texts(*t, t->Encode("a 1a")), ElementsAre("a", kGap, "1", "a"));
}

TEST(ByteLevelBpe, ManyBytesMakeOneCharacter) {
  const auto t = SmallBpeVocabulary().Create();
  EXPECT_EQ(t->Encode("\xF0\x9F\x8E\x89").size(), 1u);
  EXPECT_EQ(t->Encode("\xF0\x9F\x8E\x88").size(), 3u) << "the first half, then two bytes";
}

TEST(ByteLevelBpe, BytesWithoutATokenAreLost) {
  SmallVocabulary v = SmallBpeVocabulary();
  for (size_t i = 0; i < v.source().tokens.size(); ++i) {
    if (v.source().tokens[i] == "q") v.source().tokens[i] = "not q";
  }
  const auto t = v.Create();
  EXPECT_FALSE(t->encodes_all_bytes());
  EXPECT_EQ(t->Decode(t->Encode("a quick hello")), "a uick hello");
  EXPECT_TRUE(SmallBpeVocabulary().Create()->encodes_all_bytes());
}

TEST(SentencePiece, MergesByScore) {
  const auto t = SmallSpmVocabulary().Create();
  const auto encode = [&](std::string_view text) { return Texts(*t, t->Encode(text)); };
  EXPECT_THAT(encode("hello world"), ElementsAre("<s>", "hello", kMark + "world"));
  EXPECT_THAT(encode("aaaaa"), ElementsAre("<s>", "aaaa", "a"));
  EXPECT_THAT(encode("abab"), ElementsAre("<s>", "abab"));
  EXPECT_THAT(encode("inging"), ElementsAre("<s>", "ing", "ing"));
  EXPECT_THAT(encode("> <"), ElementsAre("<s>", ">" + kMark + "<"));
}

TEST(SentencePiece, UnknownCharactersBecomeBytes) {
  const auto t = SmallSpmVocabulary().Create();
  EXPECT_THAT(Texts(*t, t->Encode("a\xE2\x82\xAC")),
              ElementsAre("<s>", "a", "<0xE2>", "<0x82>", "<0xAC>"));
  EXPECT_THAT(Texts(*t, t->Encode("\xFFz")), ElementsAre("<s>", "<0xFF>", "z"));
  // The vocabulary's space mark is a character like any other when it stands in the text.
  EXPECT_THAT(Texts(*t, t->Encode(kMark)), ElementsAre("<s>", "<0xE2>", "<0x96>", "<0x81>"));
}

TEST(SentencePiece, WithoutByteTokensTheUnknownTokenStandsIn) {
  SmallVocabulary v = SmallSpmVocabulary();
  for (int32_t& type : v.source().types) {
    if (type == 6) type = 1;
  }
  const auto t = v.Create();
  EXPECT_FALSE(t->encodes_all_bytes());
  EXPECT_THAT(Texts(*t, t->Encode("a\xE2\x82\xAC")), ElementsAre("<s>", "a", "<unk>"));
}

TEST(SentencePiece, SpacePrefixAtEachStretch) {
  const auto t = SmallSpmVocabulary(/*add_space_prefix=*/true).Create();
  EXPECT_THAT(Texts(*t, t->Encode("world")), ElementsAre("<s>", kMark + "world"));
  EXPECT_THAT(Texts(*t, t->Encode("")), ElementsAre("<s>"));
  EXPECT_THAT(Texts(*t, t->Encode("<tool>a")), ElementsAre("<s>", kMark, "<tool>", "a"));
  EXPECT_THAT(Texts(*t, t->Encode("a<end_of_turn>a", {.parse_special = true})),
              ElementsAre("<s>", kMark + "a", "<end_of_turn>", kMark + "a"));
  EXPECT_EQ(t->Decode(t->Encode("world")), "world");
  EXPECT_EQ(t->Decode(t->Encode(" world")), " world");
}

TEST(SpecialTokens, ControlTokensOnlyWhereAsked) {
  const auto t = SmallBpeVocabulary().Create();
  const std::string text = "a<|im_end|>a";
  EXPECT_THAT(Texts(*t, t->Encode(text, {.parse_special = true})),
              ElementsAre("a", "<|im_end|>", "a"));
  EXPECT_THAT(Texts(*t, t->Encode(text)), ElementsAre("a", "<|", "im", "_", "end", "|>", "a"));
  // A text that spells a SentencePiece control token merges into its pieces at most.
  const auto spm = SmallSpmVocabulary().Create();
  EXPECT_THAT(Texts(*spm, spm->Encode("</s><s><0x0A><unk>", {.add_bos = false})),
              ElementsAre("<", "/", "s>", "<s", ">", "<", "<0x30>", "x", "<0x30>", "<0x41>", ">",
                          "<", "u", "n", "k", ">"));
}

TEST(SpecialTokens, UserDefinedTokensEverywhereAndLongestFirst) {
  const auto t = SmallSpmVocabulary().Create();
  EXPECT_THAT(Texts(*t, t->Encode("\n\n\n\n<tool>   ")),
              ElementsAre("<s>", "\n\n\n", "\n", "<tool>", "   "));
  const auto bpe = SmallBpeVocabulary().Create();
  EXPECT_THAT(Texts(*bpe, bpe->Encode("a  \tb   ")),
              ElementsAre("a", "  \t", "b", kGap + kGap, kGap));
}

TEST(SpecialTokens, BosAsTheModelAsks) {
  const auto t = SmallSpmVocabulary().Create();
  EXPECT_THAT(Texts(*t, t->Encode("a", {.add_bos = false})), ElementsAre("a"));
  // A text that spells BOS gets both from Encode; a rendered template gets one.
  EXPECT_THAT(Texts(*t, t->Encode("<s>a", {.parse_special = true})),
              ElementsAre("<s>", "<s>", "a"));
  const std::vector<TextSegment> prompt = {{"<s>a", true}};
  EXPECT_THAT(Texts(*t, t->EncodeSegments(prompt)), ElementsAre("<s>", "a"));
  const std::vector<TextSegment> user = {{"<s>a", false}};
  EXPECT_THAT(Texts(*t, t->EncodeSegments(user)), ElementsAre("<s>", "<s", ">", "a"));
  EXPECT_THAT(Texts(*t, t->EncodeSegments({})), ElementsAre("<s>"));
}

TEST(Segments, TextMergesAcrossTheirBorders) {
  const auto t = SmallBpeVocabulary().Create();
  const std::vector<TextSegment> segments = {{"<|im_start|>he", true},
                                             {"llo wo", false},
                                             {"", true},
                                             {"rld\n", false},
                                             {"\n<|im_end|>", true}};
  EXPECT_THAT(
      Texts(*t, t->EncodeSegments(segments)),
      ElementsAre("<|im_start|>", "hello", kGap + "world", "\xC4\x8A\xC4\x8A", "<|im_end|>"));
}

TEST(Segments, AControlTokenMustBeTrustedThroughout) {
  const auto t = SmallBpeVocabulary().Create();
  const TokenId end = *t->Find("<|im_end|>");
  const auto count = [&](const std::vector<TextSegment>& segments) {
    const std::vector<TokenId> tokens = t->EncodeSegments(segments);
    return std::count(tokens.begin(), tokens.end(), end);
  };
  EXPECT_EQ(count({{"<|im_", true}, {"end|>", true}}), 1) << "a border alone does not matter";
  EXPECT_EQ(count({{"<|im_", true}, {"", false}, {"end|>", true}}), 1);
  EXPECT_EQ(count({{"<|im_", true}, {"end|>", false}}), 0);
  EXPECT_EQ(count({{"<|im_", false}, {"end|>", true}}), 0);
  EXPECT_EQ(count({{"<|im_end|", true}, {">", false}}), 0);
  EXPECT_EQ(count({{"<", false}, {"|im_end|>", true}}), 0);
  EXPECT_EQ(count({{"<|im", true}, {"_", false}, {"end|>", true}}), 0);
  EXPECT_EQ(count({{"<|im_end|>", false}, {"<|im_end|>", true}, {"<|im_end|>", false}}), 1);
}

TEST(Decode, ControlTokensOnRequest) {
  const auto t = SmallBpeVocabulary().Create();
  const std::vector<TokenId> tokens = t->Encode("a<|im_end|>b", {.parse_special = true});
  EXPECT_EQ(t->Decode(tokens), "ab");
  EXPECT_EQ(t->Decode(tokens, {.special = true}), "a<|im_end|>b");
  EXPECT_EQ(t->Decode({}), "");
}

// The cost that would explode: entries of the merge queue. Merging a run of n bytes starts with at
// most n - 1 of them and each of at most n - 1 merges adds at most two.
TEST(Cost, QueueEntriesStayLinear) {
  const SmallVocabulary bpe = SmallBpeVocabulary();
  const StatusOr<Vocabulary> bpe_words = Vocabulary::Create(bpe.source());
  ASSERT_TRUE(bpe_words.ok());
  const auto bpe_encoder = BpeEncoder::Create(*bpe_words, bpe.source());
  ASSERT_TRUE(bpe_encoder.ok());
  const SmallVocabulary spm = SmallSpmVocabulary();
  const StatusOr<Vocabulary> spm_words = Vocabulary::Create(spm.source());
  ASSERT_TRUE(spm_words.ok());
  const auto spm_encoder = SpmEncoder::Create(&*spm_words, spm.source());
  ASSERT_TRUE(spm_encoder.ok());
  for (const std::string_view unit :
       {"a", " ", "ab", "hello", "<|im_end|", "\xF0\x9F\x8E\x89", "\n"}) {
    std::string text;
    while (text.size() < (1u << 18)) text += unit;
    for (const RunEncoder* encoder : {static_cast<const RunEncoder*>(bpe_encoder->get()),
                                      static_cast<const RunEncoder*>(spm_encoder->get())}) {
      BpeMerge scratch;
      std::vector<TokenId> tokens;
      encoder->Encode(text, &scratch, &tokens);
      EXPECT_LE(scratch.heap_operations(), 3 * text.size()) << unit;
      EXPECT_FALSE(tokens.empty());
    }
  }
}

}  // namespace
}  // namespace kvasir
