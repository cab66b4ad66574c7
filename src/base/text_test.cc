#include "base/text.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace rkv {
namespace {

using namespace std::string_literals;

constexpr std::string_view kNames[] = {"rocketkv", "snapkv", "full", "hsa"};

TEST(NearestName, FindsTypos) {
  EXPECT_EQ(NearestName("rocketkv", kNames), "rocketkv");
  EXPECT_EQ(NearestName("roketkv", kNames), "rocketkv");
  EXPECT_EQ(NearestName("snpakv", kNames), "snapkv");
  EXPECT_EQ(NearestName("ful", kNames), "full");
}

TEST(NearestName, IsEmptyForWordsThatAreFarOff) {
  EXPECT_EQ(NearestName("zzzzzz", kNames), "");
  EXPECT_EQ(NearestName("", kNames), "");
  EXPECT_EQ(NearestName("anything", {}), "");
}

TEST(NearestName, TiesGoToTheEarlierCandidate) {
  constexpr std::string_view kTied[] = {"abx", "aby"};
  EXPECT_EQ(NearestName("abc", kTied), "abx");
}

TEST(HumanBytes, HasThreeDigitsAndBinaryUnits) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1024), "1.00 KiB");
  EXPECT_EQ(HumanBytes(10235), "10.0 KiB");
  EXPECT_EQ(HumanBytes(102390), "100 KiB");
  EXPECT_EQ(HumanBytes(3 << 19), "1.50 MiB");
  EXPECT_EQ(HumanBytes(std::uint64_t{5} << 40), "5.00 TiB");
}

struct Malformed {
  const char* what;
  std::string text;
  std::size_t offset;        // of the first bad byte
  std::size_t replacements;  // one for each maximal part of a character, else one a byte
};

const std::vector<Malformed>& AllMalformed() {
  static const std::vector<Malformed> all = {
      {"lone continuation", "a\x80z", 1, 1},
      {"two continuations", "\x80\xbf", 0, 2},
      {"overlong, two bytes", "\xc0\xaf", 0, 2},
      {"overlong, two bytes, last", "\xc1\xbf", 0, 2},
      {"overlong, three bytes", "\xe0\x80\x80", 0, 3},
      {"overlong, three bytes, last", "\xe0\x9f\xbf", 0, 3},
      {"overlong, four bytes", "\xf0\x8f\xbf\xbf", 0, 4},
      {"high surrogate", "ab\xed\xa0\x80", 2, 3},
      {"low surrogate", "\xed\xbf\xbf", 0, 3},
      {"above U+10FFFF", "\xf4\x90\x80\x80", 0, 4},
      {"five-byte form", "\xf8\x88\x80\x80\x80", 0, 5},
      {"bytes FE and FF", "\xfe\xff", 0, 2},
      {"cut after one of two", "x\xc3", 1, 1},
      {"cut after two of three", "\xe2\x82", 0, 1},
      {"cut after three of four", "\xf0\x9f\x98", 0, 1},
      {"interrupted by ASCII",
       "\xe2\x82"
       "A",
       0, 1},
      {"interrupted by a new character", "\xf0\x9f\xc3\xa9", 0, 1},
  };
  return all;
}

TEST(FindInvalidUtf8, AcceptsEveryWellFormedLength) {
  const std::string good =
      "A\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xed\x9f\xbf\xee\x80\x80\xef\xbf\xbf"
      "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\0!"s;
  EXPECT_EQ(FindInvalidUtf8(good), std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8(""), std::string_view::npos);
  EXPECT_EQ(ReplaceInvalidUtf8(good), good);
}

TEST(FindInvalidUtf8, FindsEveryClassOfMalformedText) {
  for (const Malformed& m : AllMalformed()) {
    EXPECT_EQ(FindInvalidUtf8(m.text), m.offset) << m.what;
    EXPECT_EQ(FindInvalidUtf8("\xc3\xa9" + m.text + "!"), m.offset + 2) << m.what;
  }
}

TEST(FindInvalidUtf8, AgreesWithTheDefinitionOnEveryPairOfBytes) {
  const auto continues = [](int byte) { return byte >= 0x80 && byte <= 0xbf; };
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string two = {static_cast<char>(a), static_cast<char>(b)};
      const bool pair = (a < 0x80 && b < 0x80) || (a >= 0xc2 && a <= 0xdf && continues(b));
      ASSERT_EQ(FindInvalidUtf8(two) == std::string_view::npos, pair) << a << ' ' << b;
      // With a continuation behind: one character of three bytes, or a letter and one of two.
      const int point = (a & 0xf) << 12 | (b & 0x3f) << 6;
      const bool one = a >= 0xe0 && a <= 0xef && continues(b) && point >= 0x800 &&
                       (point < 0xd800 || point > 0xdfff);
      const bool letter = a < 0x80 && b >= 0xc2 && b <= 0xdf;
      ASSERT_EQ(FindInvalidUtf8(two + '\x80') == std::string_view::npos, one || letter)
          << a << ' ' << b;
    }
  }
}

TEST(ReplaceInvalidUtf8, PutsOneMarkForEachBadPart) {
  for (const Malformed& m : AllMalformed()) {
    const std::string out = ReplaceInvalidUtf8(m.text);
    EXPECT_EQ(FindInvalidUtf8(out), std::string_view::npos) << m.what;
    std::size_t marks = 0;
    for (std::size_t at = out.find("\xef\xbf\xbd"); at != std::string::npos;
         at = out.find("\xef\xbf\xbd", at + 3)) {
      ++marks;
    }
    EXPECT_EQ(marks, m.replacements) << m.what;
  }
  EXPECT_EQ(ReplaceInvalidUtf8("a\xff"
                               "b\xe2\x82"
                               "c"),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd"
            "c");
  EXPECT_EQ(ReplaceInvalidUtf8(""), "");
}

TEST(CompleteUtf8Prefix, LeavesOutAnUnfinishedCharacter) {
  for (const std::string character : {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80"}) {
    for (std::size_t bytes = 1; bytes < character.size(); ++bytes) {
      EXPECT_EQ(CompleteUtf8Prefix("ab" + character.substr(0, bytes)), 2u) << bytes;
      EXPECT_EQ(CompleteUtf8Prefix(character.substr(0, bytes)), 0u);
    }
    EXPECT_EQ(CompleteUtf8Prefix("ab" + character), 2 + character.size());
    EXPECT_EQ(CompleteUtf8Prefix(character + "\xc3"), character.size());
  }
  EXPECT_EQ(CompleteUtf8Prefix(""), 0u);
  EXPECT_EQ(CompleteUtf8Prefix("abc"), 3u);
}

TEST(CompleteUtf8Prefix, MalformedBytesCountAsComplete) {
  for (const std::string text :
       {"a\x80", "a\xff", "a\xc0\xaf", "a\xed\xa0", "a\xf4\x90", "\x80\x80\x80\x80"}) {
    EXPECT_EQ(CompleteUtf8Prefix(text), text.size());
  }
}

TEST(CompleteUtf8Prefix, AStreamGivesTheTextBackInCompletePieces) {
  const std::string text = "h\xc3\xa9llo \xe2\x82\xac \xf0\x9f\x98\x80!";
  for (std::size_t step = 1; step <= 5; ++step) {
    std::string pending;
    std::string out;
    for (std::size_t at = 0; at < text.size(); at += step) {
      pending += text.substr(at, step);
      const std::size_t ready = CompleteUtf8Prefix(pending);
      EXPECT_EQ(FindInvalidUtf8(pending.substr(0, ready)), std::string_view::npos);
      out += pending.substr(0, ready);
      pending.erase(0, ready);
    }
    EXPECT_EQ(out, text);
    EXPECT_TRUE(pending.empty());
  }
}

}  // namespace
}  // namespace rkv
