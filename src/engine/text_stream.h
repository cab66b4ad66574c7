// TextStream: turns the bytes of generated tokens into text that is safe to show, up to a stop
// string.
#ifndef RKV_ENGINE_TEXT_STREAM_H_
#define RKV_ENGINE_TEXT_STREAM_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace rkv::engine {

// The text of all bytes is defined at once, however they are cut into pieces:
//   1. every malformed UTF-8 sequence becomes one U+FFFD, an incomplete character at the end too;
//   2. text ends right before the stop string that begins first; of two that begin at the same
//      place, the one that ends first counts.
// Push gives out the part of it that is certain. It holds back an incomplete character (at most 3
// bytes) and text that may still become a stop string (at most its length less 1).
// Not thread-safe. Cost: linear in bytes times stop strings, however they overlap.
class TextStream {
 public:
  // Empty stop strings never stop; malformed UTF-8 in one is replaced as in the text.
  explicit TextStream(const std::vector<std::string>& stop);

  // Takes the bytes of the next token; returns text that follows what was returned before, in whole
  // characters, maybe empty. Empty once stopped.
  std::string Push(std::string_view bytes);

  // The end of the bytes: returns what was held back. Push must not follow.
  std::string Finish();

  // Whether a stop string was met for certain, and which.
  bool stopped() const { return stop_ != kNone; }
  // As it was given; empty unless stopped.
  std::string stop_string() const { return stopped() ? matchers_[stop_].given : std::string(); }

 private:
  // Knuth-Morris-Pratt automaton of one stop string.
  struct Matcher {
    explicit Matcher(const std::string& stop);
    void Advance(char c, std::size_t end);      // `end`: of the text with c
    bool Precedes(const Matcher& other) const;  // REQUIRES: both have matched

    std::string given;
    std::string text;
    std::vector<std::size_t> fallback;  // [i]: longest proper border of the first i + 1 bytes
    std::size_t matched = 0;            // bytes of `text` that the stream ends with
    std::size_t begin = kNone;          // of the first match, in the whole text
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void Match(std::string_view text);
  std::string Take(bool at_end);

  std::vector<Matcher> matchers_;
  std::size_t stop_ = kNone;  // which of matchers_ was met
  std::string bytes_;         // of an incomplete character
  std::string held_;          // well-formed text not yet given out
  std::size_t given_ = 0;     // bytes of text given out
};

}  // namespace rkv::engine

#endif  // RKV_ENGINE_TEXT_STREAM_H_
