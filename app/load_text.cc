#include "load_text.h"

#include <iterator>

#include "base/rng.h"

namespace kvasir {
namespace {

// Frequent enough to be one token each, with the blank before them, in every English vocabulary.
constexpr const char* kWords[] = {
    "the",   "of",      "and",     "to",     "in",      "is",     "that",   "was",     "he",
    "for",   "it",      "with",    "as",     "his",     "on",     "be",     "at",      "by",
    "had",   "not",     "are",     "but",    "from",    "or",     "have",   "an",      "they",
    "which", "one",     "you",     "were",   "her",     "all",    "she",    "there",   "would",
    "their", "we",      "him",     "been",   "has",     "when",   "who",    "will",    "more",
    "no",    "if",      "out",     "so",     "said",    "what",   "up",     "its",     "about",
    "into",  "than",    "them",    "can",    "only",    "other",  "new",    "some",    "could",
    "time",  "these",   "two",     "may",    "then",    "do",     "first",  "any",     "my",
    "now",   "such",    "like",    "our",    "over",    "man",    "me",     "even",    "most",
    "made",  "after",   "also",    "did",    "many",    "before", "must",   "through", "back",
    "years", "where",   "much",    "your",   "way",     "well",   "down",   "should",  "because",
    "each",  "just",    "those",   "people", "how",     "too",    "little", "state",   "good",
    "very",  "make",    "world",   "still",  "own",     "see",    "men",    "work",    "long",
    "get",   "here",    "between", "both",   "life",    "being",  "under",  "never",   "day",
    "same",  "another", "know",    "while",  "last",    "might",  "us",     "great",   "old",
    "year",  "off",     "come",    "since",  "against", "go",     "came",   "right",   "used",
    "take",  "three",   "house",   "use",    "place",   "small",  "part",   "found",   "water",
    "name",  "home",    "high",    "number", "night",   "point",  "hand",   "head",    "city",
};

}  // namespace

std::string CommonWords(uint64_t seed, uint64_t stream, uint64_t count) {
  Rng rng(Mix64(seed) ^ Mix64(~stream));
  std::string text;
  for (uint64_t i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += kWords[rng.Below(std::size(kWords))];
  }
  return text;
}

}  // namespace kvasir
