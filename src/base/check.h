// KV_CHECK: our own bugs stop the process, in release builds too, with the values that broke the
// rule.
//
// Never for data from outside (files, network, flags): that is a Status. KV_DCHECK is for the few
// places where a check is measurably hot; it is compiled only without NDEBUG.
#ifndef KVASIR_BASE_CHECK_H_
#define KVASIR_BASE_CHECK_H_

#include <string>
#include <type_traits>

namespace kvasir::check_internal {

// Prints "file:line: check failed: text (values)" on standard error and aborts.
[[noreturn]] void Fail(const char* file, int line, const char* text, const std::string& values);

std::string ToText(long long value);
std::string ToText(unsigned long long value);
std::string ToText(double value);
std::string ToText(const void* value);

template <typename T>
std::string Format(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return Format(static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return ToText(static_cast<double>(value));
  } else if constexpr (std::is_signed_v<T>) {
    return ToText(static_cast<long long>(value));
  } else if constexpr (std::is_integral_v<T>) {
    return ToText(static_cast<unsigned long long>(value));
  } else if constexpr (std::is_pointer_v<T>) {
    return ToText(static_cast<const void*>(value));
  } else {
    return "?";
  }
}

}  // namespace kvasir::check_internal

#define KV_CHECK(condition)                                                          \
  do {                                                                               \
    if (!(condition)) [[unlikely]]                                                   \
      ::kvasir::check_internal::Fail(__FILE__, __LINE__, #condition, std::string()); \
  } while (false)

#define KV_CHECK_OP(a, op, b)                                                           \
  do {                                                                                  \
    const auto& kv_a_ = (a);                                                            \
    const auto& kv_b_ = (b);                                                            \
    if (!(kv_a_ op kv_b_)) [[unlikely]]                                                 \
      ::kvasir::check_internal::Fail(__FILE__, __LINE__, #a " " #op " " #b,             \
                                     ::kvasir::check_internal::Format(kv_a_) + " vs " + \
                                         ::kvasir::check_internal::Format(kv_b_));      \
  } while (false)

#define KV_CHECK_EQ(a, b) KV_CHECK_OP(a, ==, b)
#define KV_CHECK_NE(a, b) KV_CHECK_OP(a, !=, b)
#define KV_CHECK_LT(a, b) KV_CHECK_OP(a, <, b)
#define KV_CHECK_LE(a, b) KV_CHECK_OP(a, <=, b)
#define KV_CHECK_GT(a, b) KV_CHECK_OP(a, >, b)
#define KV_CHECK_GE(a, b) KV_CHECK_OP(a, >=, b)

#ifdef NDEBUG
#define KV_DCHECK(condition) \
  do {                       \
  } while (false)
#else
#define KV_DCHECK(condition) KV_CHECK(condition)
#endif

#endif  // KVASIR_BASE_CHECK_H_
