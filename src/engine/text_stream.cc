#include "engine/text_stream.h"

#include <algorithm>

#include "base/text.h"

namespace rkv::engine {

TextStream::Matcher::Matcher(const std::string& stop)
    : given(stop), text(ReplaceInvalidUtf8(stop)), fallback(text.size()) {
  std::size_t border = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    while (border > 0 && text[i] != text[border]) {
      border = fallback[border - 1];
    }
    border += text[i] == text[border] ? 1 : 0;
    fallback[i] = border;
  }
}

void TextStream::Matcher::Advance(char c, std::size_t end) {
  while (matched > 0 && c != text[matched]) {
    matched = fallback[matched - 1];
  }
  matched += c == text[matched] ? 1 : 0;
  if (matched == text.size()) {
    begin = end - text.size();
    matched = 0;  // later matches begin later: they cannot count
  }
}

bool TextStream::Matcher::Precedes(const Matcher& other) const {
  return begin != other.begin ? begin < other.begin : text.size() < other.text.size();
}

TextStream::TextStream(const std::vector<std::string>& stop) {
  for (const std::string& text : stop) {
    if (!text.empty()) {
      matchers_.emplace_back(text);
    }
  }
}

void TextStream::Match(std::string_view text) {
  const std::size_t start = given_ + held_.size();
  for (Matcher& matcher : matchers_) {
    for (std::size_t i = 0; i < text.size() && matcher.begin == kNone; ++i) {
      matcher.Advance(text[i], start + i + 1);
    }
  }
  held_ += text;
}

std::string TextStream::Take(bool at_end) {
  const std::size_t end = given_ + held_.size();
  std::size_t first = kNone;  // the matcher whose match begins first
  std::size_t open = end;     // where the first stop string that may still complete begins
  for (std::size_t i = 0; i < matchers_.size(); ++i) {
    const Matcher& matcher = matchers_[i];
    open = std::min(open, end - (at_end ? 0 : matcher.matched));
    if (matcher.begin != kNone && (first == kNone || matcher.Precedes(matchers_[first]))) {
      first = i;
    }
  }
  std::size_t until = open;
  if (first != kNone && matchers_[first].begin <= open) {
    stop_ = first;
    until = matchers_[first].begin;
  }
  std::string text = held_.substr(0, until - given_);
  held_.erase(0, text.size());
  given_ = until;
  return text;
}

std::string TextStream::Push(std::string_view bytes) {
  if (stopped()) {
    return {};
  }
  bytes_ += bytes;
  const std::size_t whole = CompleteUtf8Prefix(bytes_);
  Match(ReplaceInvalidUtf8(std::string_view(bytes_).substr(0, whole)));
  bytes_.erase(0, whole);
  return Take(false);
}

std::string TextStream::Finish() {
  if (stopped()) {
    return {};
  }
  Match(ReplaceInvalidUtf8(bytes_));
  bytes_.clear();
  return Take(true);
}

}  // namespace rkv::engine
