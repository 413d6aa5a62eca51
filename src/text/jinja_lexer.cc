#include "text/jinja_lexer.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "text/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

bool IsNameChar(char c) { return IsNameStart(c) || IsDigit(c); }

std::string NormalizeNewlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
      continue;
    }
    out += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeNewlines(source)) {}

  StatusOr<std::vector<Token>> Run() {
    while (pos_ < source_.size()) KV_RETURN_IF_ERROR(LexText());
    Emit(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(pos_); }
  char at(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }

  void Emit(TokenKind kind, std::string text) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }

  void AdvanceTo(size_t end) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(pos_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    pos_ = end;
  }

  // The end of the text [begin, end) that stands before a tag with strip sign `sign`.
  size_t StripBefore(size_t begin, size_t end, char sign, bool is_variable) const {
    const std::string_view text(source_);
    if (sign == '-') return DropTrailingSpaces(text, begin, end);
    if (sign == '+' || is_variable) return end;
    size_t start = end;
    while (start > begin && text[start - 1] != '\n') --start;
    // Only white space between the start of the line and the tag: it is dropped (lstrip_blocks).
    const bool at_line_start = start > begin || begin == 0 || text[begin - 1] == '\n';
    if (!at_line_start || DropTrailingSpaces(text, start, end) != start) return end;
    return start;
  }

  // Consumes the closing delimiter at pos_ (whose sign, if any, comes first) and the white space
  // that it swallows.
  void FinishTag(char sign, size_t delimiter_length, bool trims_newline) {
    size_t end = pos_ + (sign == '\0' ? 0 : 1) + delimiter_length;
    if (sign == '-') {
      end = SkipSpaces(source_, end);
    } else if (sign == '\0' && trims_newline && at(end) == '\n') {
      ++end;
    }
    AdvanceTo(end);
  }

  Status LexText() {
    size_t tag = pos_;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos) {
        Emit(TokenKind::kText, std::string(rest()));
        AdvanceTo(source_.size());
        return OkStatus();
      }
      if (at(tag + 1) == '{' || at(tag + 1) == '%' || at(tag + 1) == '#') break;
      ++tag;
    }
    const char type = at(tag + 1);
    char sign = at(tag + 2);
    if (sign != '-' && sign != '+') sign = '\0';
    const size_t text_end = StripBefore(pos_, tag, sign, type == '{');
    if (text_end > pos_) Emit(TokenKind::kText, source_.substr(pos_, text_end - pos_));
    AdvanceTo(tag);
    const size_t inside = tag + (sign == '\0' ? 2 : 3);
    if (type == '#') return LexComment(inside);
    if (type == '{') {
      Emit(TokenKind::kVariableBegin, "{{");
      AdvanceTo(inside);
      return LexCode(true);
    }
    if (const auto raw = MatchRawTag(tag, "raw")) return LexRaw(*raw);
    Emit(TokenKind::kBlockBegin, "{%");
    AdvanceTo(inside);
    return LexCode(false);
  }

  Status LexComment(size_t inside) {
    const size_t end = source_.find("#}", inside);
    if (end == std::string::npos) {
      return InvalidArgument("line {}: a comment '{{#' is never closed with '#}}'", line_);
    }
    char sign = end > inside ? at(end - 1) : '\0';
    if (sign != '-' && sign != '+') sign = '\0';
    AdvanceTo(sign == '\0' ? end : end - 1);
    FinishTag(sign, 2, true);
    return OkStatus();
  }

  struct RawTag {
    size_t close;  // Offset of the sign or of %}.
    char sign;
  };

  // Whether {%[-+] word [-+]%} stands at `tag`.
  std::optional<RawTag> MatchRawTag(size_t tag, std::string_view word) const {
    size_t i = tag + 2;
    if (at(i) == '-' || at(i) == '+') ++i;
    i = SkipSpaces(source_, i);
    if (source_.compare(i, word.size(), word) != 0) return std::nullopt;
    i = SkipSpaces(source_, i + word.size());
    const char sign = at(i) == '-' || at(i) == '+' ? at(i) : '\0';
    const size_t percent = sign == '\0' ? i : i + 1;
    if (at(percent) != '%' || at(percent + 1) != '}') return std::nullopt;
    return RawTag{i, sign};
  }

  Status LexRaw(RawTag open) {
    const int first_line = line_;
    AdvanceTo(open.close);
    FinishTag(open.sign, 2, false);
    for (size_t tag = source_.find("{%", pos_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const auto close = MatchRawTag(tag, "endraw");
      if (!close) continue;
      const char sign = at(tag + 2) == '-' || at(tag + 2) == '+' ? at(tag + 2) : '\0';
      const size_t end = StripBefore(pos_, tag, sign, false);
      if (end > pos_) Emit(TokenKind::kText, source_.substr(pos_, end - pos_));
      AdvanceTo(close->close);
      FinishTag(close->sign, 2, true);
      return OkStatus();
    }
    return InvalidArgument("line {}: 'raw' without 'endraw'", first_line);
  }

  // Lexes up to and including the end of the tag.
  Status LexCode(bool is_variable) {
    const int first_line = line_;
    const char closing = is_variable ? '}' : '%';
    std::string brackets;
    while (true) {
      AdvanceTo(SkipSpaces(source_, pos_));
      if (pos_ >= source_.size()) {
        return InvalidArgument("line {}: a tag '{}' is never closed with '{}'", first_line,
                               is_variable ? "{{" : "{%", is_variable ? "}}" : "%}");
      }
      const bool has_sign = at(pos_) == '-' || (at(pos_) == '+' && !is_variable);
      const size_t end = pos_ + (has_sign ? 1 : 0);
      if (brackets.empty() && at(end) == closing && at(end + 1) == '}') {
        const char sign = has_sign ? at(pos_) : '\0';
        Emit(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd,
             is_variable ? "}}" : "%}");
        FinishTag(sign, 2, !is_variable);
        return OkStatus();
      }
      KV_RETURN_IF_ERROR(LexToken(&brackets));
    }
  }

  Status LexToken(std::string* brackets) {
    const char c = at(pos_);
    if (c == '"' || c == '\'') return LexString(c);
    if (IsDigit(c)) return LexNumber();
    if (IsNameStart(c)) {
      size_t end = pos_;
      while (IsNameChar(at(end)) && end < source_.size()) ++end;
      Emit(TokenKind::kName, source_.substr(pos_, end - pos_));
      AdvanceTo(end);
      return OkStatus();
    }
    for (const std::string_view op : {"==", "!=", "<=", ">=", "**", "//"}) {
      if (rest().substr(0, 2) == op) {
        Emit(TokenKind::kOperator, std::string(op));
        AdvanceTo(pos_ + 2);
        return OkStatus();
      }
    }
    if (std::string_view("+-/*%~[](){}<>=.:|,;").find(c) == std::string_view::npos) {
      return InvalidArgument("line {}: unexpected character '{}' in a tag", line_, c);
    }
    KV_RETURN_IF_ERROR(TrackBracket(c, brackets));
    Emit(TokenKind::kOperator, std::string(1, c));
    AdvanceTo(pos_ + 1);
    return OkStatus();
  }

  // Inside brackets }} closes two dicts, not the tag.
  Status TrackBracket(char c, std::string* brackets) const {
    if (c == '(') brackets->push_back(')');
    if (c == '[') brackets->push_back(']');
    if (c == '{') brackets->push_back('}');
    if (c != ')' && c != ']' && c != '}') return OkStatus();
    if (brackets->empty()) return InvalidArgument("line {}: unexpected '{}'", line_, c);
    if (brackets->back() != c) {
      return InvalidArgument("line {}: unexpected '{}', expected '{}'", line_, c, brackets->back());
    }
    brackets->pop_back();
    return OkStatus();
  }

  Status LexString(char quote) {
    const int first_line = line_;
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) {
      return InvalidArgument("line {}: a string {} is never closed", first_line, quote);
    }
    std::string value;
    KV_RETURN_IF_ERROR(Unescape(source_.substr(pos_ + 1, end - pos_ - 1), &value));
    Emit(TokenKind::kString, std::move(value));
    AdvanceTo(end + 1);
    return OkStatus();
  }

  Status Unescape(std::string_view raw, std::string* out) const {
    for (size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] != '\\' || i + 1 >= raw.size()) {
        *out += raw[i];
        continue;
      }
      const char c = raw[++i];
      static constexpr std::string_view kFrom = "abfnrtv\\'\"";
      static constexpr std::string_view kTo = "\a\b\f\n\r\t\v\\'\"";
      const size_t simple = kFrom.find(c);
      if (c == '\n') continue;
      if (simple != kFrom.npos) {
        *out += kTo[simple];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        KV_RETURN_IF_ERROR(UnescapeHex(raw, &i, out));
      } else if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        const size_t stop = std::min(raw.size(), i + 3);
        for (; i < stop && raw[i] >= '0' && raw[i] <= '7'; ++i) {
          code = code * 8 + static_cast<uint32_t>(raw[i] - '0');
        }
        --i;
        AppendUtf8(code, out);
      } else if (c == 'N') {
        return InvalidArgument("line {}: \\N{{...}} in a string is not supported; use \\u", line_);
      } else {
        *out += '\\';
        *out += c;
      }
    }
    return OkStatus();
  }

  Status UnescapeHex(std::string_view raw, size_t* i, std::string* out) const {
    const char type = raw[*i];
    const size_t digits = type == 'x' ? 2 : type == 'u' ? 4 : 8;
    const std::string_view hex = raw.substr(*i + 1, digits);
    uint32_t code = 0;
    const auto parsed = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    if (hex.size() != digits || parsed.ptr != hex.data() + hex.size() || !AppendUtf8(code, out)) {
      return InvalidArgument("line {}: bad escape \\{}{} in a string", line_, type, hex);
    }
    *i += digits;
    return OkStatus();
  }

  Status LexNumber() {
    size_t end = pos_;
    int base = 10;
    const char marker = static_cast<char>(at(pos_ + 1) | 0x20);
    if (at(pos_) == '0' && (marker == 'x' || marker == 'o' || marker == 'b')) {
      base = marker == 'x' ? 16 : marker == 'o' ? 8 : 2;
      end += 2;
    }
    const auto digits = [&] {
      while (IsDigit(at(end)) || at(end) == '_' ||
             (base == 16 &&
              std::string_view("abcdefABCDEF").find(at(end)) != std::string_view::npos)) {
        ++end;
      }
    };
    digits();
    bool is_float = false;
    const bool after_dot = pos_ > 0 && at(pos_ - 1) == '.';
    if (base == 10 && !after_dot) {
      if (at(end) == '.' && IsDigit(at(end + 1))) {
        is_float = true;
        ++end;
        digits();
      }
      const size_t sign = at(end + 1) == '+' || at(end + 1) == '-' ? 1 : 0;
      if ((at(end) == 'e' || at(end) == 'E') && IsDigit(at(end + 1 + sign))) {
        is_float = true;
        end += 2 + sign;
        digits();
      }
    }
    std::string text = source_.substr(pos_, end - pos_);
    const bool bad_underscore = text.find("__") != text.npos || text.back() == '_';
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    Emit(is_float ? TokenKind::kFloat : TokenKind::kInteger, text);
    const char* first = text.data() + (base == 10 ? 0 : 2);
    const char* last = text.data() + text.size();
    const auto parsed = is_float ? std::from_chars(first, last, tokens_.back().number)
                                 : std::from_chars(first, last, tokens_.back().integer, base);
    const bool bad_zero =
        base == 10 && !is_float && text[0] == '0' && text.find_first_not_of('0') != text.npos;
    if (parsed.ec != std::errc() || parsed.ptr != last || bad_underscore || bad_zero) {
      return InvalidArgument("line {}: bad or too large number '{}'", line_, text);
    }
    AdvanceTo(end);
    return OkStatus();
  }

  std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

StatusOr<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(source).Run(); }

std::string DescribeToken(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "end of template";
    case TokenKind::kString:
      return fmt::format("string '{}'", token.text.substr(0, 40));
    case TokenKind::kText:
      return "text";
    default:
      return fmt::format("'{}'", token.text);
  }
}

}  // namespace kvasir::jinja
