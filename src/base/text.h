// Text helpers for messages: nearest names, byte counts, UTF-8 checks.
#ifndef RKV_BASE_TEXT_H_
#define RKV_BASE_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace rkv {

// The candidate with the smallest edit distance to `word`, or empty when none is within half of
// the word's length (of one edit for a word of one letter). Ties go to the earlier candidate.
std::string_view NearestName(std::string_view word, std::span<const std::string_view> candidates);

// "1.50 MiB", "512 B": three significant digits, binary units.
std::string HumanBytes(std::uint64_t bytes);

// Offset of the first byte that is not part of well-formed UTF-8, or npos.
std::size_t FindInvalidUtf8(std::string_view text);

// Length of the longest prefix that ends between characters: an incomplete character at the end is
// left out, malformed bytes count as complete.
std::size_t CompleteUtf8Prefix(std::string_view text);

// `text` with every malformed byte sequence replaced by U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace rkv

#endif  // RKV_BASE_TEXT_H_
