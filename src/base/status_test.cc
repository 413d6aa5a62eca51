#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace kvasir {
namespace {

TEST(Status, ConstructorsSetCodeAndFormatTheMessage) {
  const Status status = InvalidArgument("{}: offset {} is past the end", "a.gguf", 7);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(MessageOf(status), "a.gguf: offset 7 is past the end");
  EXPECT_EQ(NotFound("x").code(), StatusCode::kNotFound);
  EXPECT_EQ(Unimplemented("x").code(), StatusCode::kUnimplemented);
  EXPECT_EQ(ResourceExhausted("x").code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Internal("x").code(), StatusCode::kInternal);
}

TEST(Status, MessageKeepsBracesAndBytes) {
  const std::string text = std::string("{} \0 \xff", 6);
  EXPECT_EQ(MessageOf(MakeStatus(StatusCode::kInternal, text)), text);
}

TEST(Status, WithPrefixKeepsTheCodeAndLeavesOkAlone) {
  const Status status = WithPrefix(NotFound("no tensor"), "a.gguf");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(MessageOf(status), "a.gguf: no tensor");
  EXPECT_TRUE(WithPrefix(OkStatus(), "a.gguf").ok());
  EXPECT_EQ(MessageOf(WithPrefix(OkStatus(), "a.gguf")), "");
}

StatusOr<std::unique_ptr<int>> Make(int value) {
  if (value < 0) return InvalidArgument("{} is negative", value);
  return std::make_unique<int>(value);
}

Status SumInto(int a, int b, int* sum, int* calls) {
  KV_ASSIGN_OR_RETURN(const std::unique_ptr<int> first, Make(a));
  ++*calls;
  KV_ASSIGN_OR_RETURN(const std::unique_ptr<int> second, Make(b));
  ++*calls;
  KV_RETURN_IF_ERROR(*first == *second ? InvalidArgument("equal") : OkStatus());
  *sum = *first + *second;
  return OkStatus();
}

TEST(Status, MacrosMoveTheValueOrReturnTheFirstError) {
  int sum = 0, calls = 0;
  EXPECT_TRUE(SumInto(2, 3, &sum, &calls).ok());
  EXPECT_EQ(sum, 5);
  calls = 0;
  EXPECT_EQ(MessageOf(SumInto(1, -4, &sum, &calls)), "-4 is negative");
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(MessageOf(SumInto(-1, -4, &sum, &calls)), "-1 is negative");
  EXPECT_EQ(MessageOf(SumInto(6, 6, &sum, &calls)), "equal");
  EXPECT_EQ(sum, 5) << "written although an error was returned";
}

TEST(Status, ReturnIfErrorEvaluatesOnce) {
  int evaluated = 0;
  const auto function = [&]() -> Status {
    KV_RETURN_IF_ERROR((++evaluated, OkStatus()));
    return OkStatus();
  };
  EXPECT_TRUE(function().ok());
  EXPECT_EQ(evaluated, 1);
}

}  // namespace
}  // namespace kvasir
