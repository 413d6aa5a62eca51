#include "io/download_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace kvasir {
namespace {

using ::testing::HasSubstr;

std::string Parsed(std::string_view text) {
  const auto url = ParseUrl(text);
  return url.ok() ? url->Full() : "error: " + std::string(MessageOf(url.status()));
}

TEST(DownloadUrl, Parses) {
  const auto url = ParseUrl("HTTPS://Example.ORG:8443/a/b.gguf?x=1#part");
  ASSERT_TRUE(url.ok()) << MessageOf(url.status());
  EXPECT_TRUE(url->tls);
  EXPECT_EQ(url->host, "example.org");
  EXPECT_EQ(url->port, 8443);
  EXPECT_EQ(url->target, "/a/b.gguf?x=1");
  EXPECT_EQ(url->Shown(), "https://example.org:8443/a/b.gguf");
  EXPECT_EQ(Parsed("http://h"), "http://h/");
  EXPECT_EQ(Parsed("http://h:80/x"), "http://h/x");
  EXPECT_EQ(Parsed("https://h:80/x"), "https://h:80/x");
  EXPECT_EQ(Parsed("http://[::1]:8080/x"), "http://[::1]:8080/x");
  EXPECT_EQ(Parsed("http://h?q"), "http://h/?q");
  EXPECT_EQ(Parsed("http://h/a b\xc3\xa4\"%20"), "http://h/a%20b%C3%A4%22%20");
}

TEST(DownloadUrl, Refuses) {
  for (const char* text :
       {"", "h/x", "ftp://h/x", "http:/h", "http://", "http:///x", "http://u:p@h/x", "http://h:0/",
        "http://h:65536/", "http://h:8a/", "http://[::1/x", "http://[::1]x/", "http://[g]/",
        "http://h_!/x", "http://a b/x", "http://h/x\ny", "http://h\r\nHost: x/"}) {
    EXPECT_THAT(Parsed(text), HasSubstr("error: ")) << text;
  }
}

// RFC 3986, 5.4: the examples that apply to http, and what browsers are sent.
TEST(DownloadUrl, Resolves) {
  const Url base = *ParseUrl("http://a/b/c/d;p?q");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"g", "http://a/b/c/g"},
      {"./g", "http://a/b/c/g"},
      {"g/", "http://a/b/c/g/"},
      {"/g", "http://a/g"},
      {"//g", "http://g/"},
      {"?y", "http://a/b/c/d;p?y"},
      {"g?y", "http://a/b/c/g?y"},
      {"#s", "http://a/b/c/d;p?q"},
      {"g#s", "http://a/b/c/g"},
      {";x", "http://a/b/c/;x"},
      {"", "http://a/b/c/d;p?q"},
      {".", "http://a/b/c/"},
      {"..", "http://a/b/"},
      {"../g", "http://a/b/g"},
      {"../..", "http://a/"},
      {"../../../g", "http://a/g"},
      {"/./g", "http://a/g"},
      {"/../g", "http://a/g"},
      {"g.", "http://a/b/c/g."},
      {"..g", "http://a/b/c/..g"},
      {"./g/.", "http://a/b/c/g/"},
      {"g/../h", "http://a/b/c/h"},
      {"g?y/../x", "http://a/b/c/g?y/../x"},
      {"https://x:8/y", "https://x:8/y"},
      {"a/b:c", "http://a/b/c/a/b:c"},
  };
  for (const auto& [reference, want] : cases) {
    const auto url = ResolveUrl(base, reference);
    ASSERT_TRUE(url.ok()) << reference << ": " << MessageOf(url.status());
    EXPECT_EQ(url->Full(), want) << reference;
  }
  EXPECT_EQ(ResolveUrl(*ParseUrl("https://a/b"), "//c/d")->Full(), "https://c/d");
  for (const char* bad : {"ftp://x/y", "javascript:0", "http:", "g\r\nX: y", "//u@h/"}) {
    EXPECT_FALSE(ResolveUrl(base, bad).ok()) << bad;
  }
}

TEST(DownloadUrl, HuggingFaceShortForm) {
  const std::string want = "https://huggingface.co/o/r/resolve/main/d/f.gguf";
  EXPECT_EQ(*ExpandUrl("hf:o/r/d/f.gguf"), want);
  EXPECT_EQ(*ExpandUrl("hf://o/r/d/f.gguf"), want);
  EXPECT_EQ(*ExpandUrl("hf:o/r@v1/f.gguf"), "https://huggingface.co/o/r/resolve/v1/f.gguf");
  EXPECT_EQ(*ExpandUrl("http://x/y"), "http://x/y");
  for (const char* bad : {"hf:", "hf:o", "hf:o/r", "hf:o/r/", "hf:/r/f", "hf:o//f", "hf:o/r@/f",
                          "hf:o/@v/f", "hf:o/r/f?x"}) {
    EXPECT_FALSE(ExpandUrl(bad).ok()) << bad;
  }
  EXPECT_TRUE(LooksLikeUrl("hf:o/r/f") && LooksLikeUrl("HTTP://x"));
  EXPECT_FALSE(LooksLikeUrl("models/http.gguf") || LooksLikeUrl("./hf:x"));
}

TEST(DownloadUrl, NamesAreHarmless) {
  EXPECT_EQ(SafeFileName("model-Q4_0.gguf", ".gguf"), "model-Q4_0.gguf");
  EXPECT_EQ(SafeFileName("M.GGUF", ".gguf"), "M.GGUF");
  EXPECT_EQ(SafeFileName("model", ".gguf"), "model.gguf");
  EXPECT_EQ(SafeFileName("../../etc/passwd", ".gguf"), "passwd.gguf");
  EXPECT_EQ(SafeFileName("C:\\x\\..\\y", ".gguf"), "y.gguf");
  EXPECT_EQ(SafeFileName("..", ".gguf"), "");
  EXPECT_EQ(SafeFileName(".-. hidden", ".gguf"), "hidden.gguf");
  EXPECT_EQ(SafeFileName("a b\n\x01\xc3\xa4;$(x)", ".gguf"), "a_b_______x_.gguf");
  EXPECT_EQ(SafeFileName(".gguf", ".gguf"), "gguf.gguf");
  EXPECT_EQ(SafeFileName("a" + std::string(500, '.'), ".gguf"), "");
  const std::string longest = SafeFileName(std::string(5000, 'x') + ".gguf", ".gguf");
  EXPECT_EQ(longest, std::string(kMaxFileName - 5, 'x') + ".gguf");
  EXPECT_EQ(FileNameOfUrl(*ParseUrl("http://h/a/b%2Fc%20d.gguf?e=/f"), ".gguf"), "c_d.gguf");
  EXPECT_EQ(FileNameOfUrl(*ParseUrl("http://h/a/"), ".gguf"), "");
  for (const std::string& made : {longest, SafeFileName("x.part", ".gguf")}) {
    EXPECT_EQ(FileNameProblem(made), "") << made;
  }
}

TEST(DownloadUrl, DispositionNames) {
  EXPECT_EQ(DispositionFileName("attachment; filename=\"a \\\"b\\\".gguf\"; size=3"),
            "a \"b\".gguf");
  EXPECT_EQ(DispositionFileName("attachment; filename=a.gguf ; x=y"), "a.gguf");
  EXPECT_EQ(DispositionFileName("attachment; filename=x; filename*=UTF-8''b%20c.gguf"), "b c.gguf");
  EXPECT_EQ(DispositionFileName("attachment;FileName*=utf-8'en'z"), "z");
  for (const char* none :
       {"", "attachment", "attachment;", "attachment; filename", "inline; ; x"}) {
    EXPECT_EQ(DispositionFileName(none), "") << none;
  }
  EXPECT_EQ(DispositionFileName("a; filename=\"unended"), "unended");
  EXPECT_EQ(DispositionFileName("a; filename*=x"), "");
}

}  // namespace
}  // namespace kvasir
