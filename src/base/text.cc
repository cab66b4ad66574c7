#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace rkv {
namespace {

std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitute});
    }
  }
  return row[b.size()];
}

unsigned char At(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

// Bytes that a character with this first byte has, 0 for a byte that can start none.
std::size_t CharacterBytes(unsigned char first) {
  if (first < 0x80) {
    return 1;
  }
  if (first < 0xc2 || first > 0xf4) {
    return 0;
  }
  return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

// Whether byte `i` of a character may follow `first`: no overlong forms, surrogates, or > U+10FFFF.
bool MayFollow(unsigned char first, std::size_t i, unsigned char byte) {
  if (i == 1) {
    switch (first) {
      case 0xe0:
        return byte >= 0xa0 && byte <= 0xbf;
      case 0xed:
        return byte >= 0x80 && byte <= 0x9f;
      case 0xf0:
        return byte >= 0x90 && byte <= 0xbf;
      case 0xf4:
        return byte >= 0x80 && byte <= 0x8f;
      default:
        break;
    }
  }
  return byte >= 0x80 && byte <= 0xbf;
}

struct Character {
  std::size_t bytes;  // well-formed bytes at the start, at least 1
  bool complete;
  bool may_continue;  // incomplete only because the text ends
};

Character ReadCharacter(std::string_view text, std::size_t at) {
  const unsigned char first = At(text, at);
  const std::size_t want = CharacterBytes(first);
  std::size_t have = 1;
  while (have < want && at + have < text.size() && MayFollow(first, have, At(text, at + have))) {
    ++have;
  }
  return {have, want != 0 && have == want, want != 0 && have < want && at + have == text.size()};
}

}  // namespace

std::string_view NearestName(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(word.size() / 2, 1) + 1;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string HumanBytes(std::uint64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024.0 && unit + 1 < kUnits.size()) {
    value /= 1024.0;
    ++unit;
  }
  if (unit == 0) {
    return fmt::format("{} B", bytes);
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, decimals, kUnits[unit]);
}

std::size_t FindInvalidUtf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const Character c = ReadCharacter(text, at);
    if (!c.complete) {
      return at;
    }
    at += c.bytes;
  }
  return std::string_view::npos;
}

std::size_t CompleteUtf8Prefix(std::string_view text) {
  // Only the last three bytes can begin an incomplete character.
  for (std::size_t back = std::min<std::size_t>(3, text.size()); back > 0; --back) {
    const std::size_t at = text.size() - back;
    if ((At(text, at) & 0xc0) != 0x80 && ReadCharacter(text, at).may_continue) {
      return at;
    }
  }
  return text.size();
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Character c = ReadCharacter(text, at);
    if (c.complete) {
      out.append(text.substr(at, c.bytes));
    } else {
      out.append("\xef\xbf\xbd");
    }
    at += c.bytes;
  }
  return out;
}

}  // namespace rkv
