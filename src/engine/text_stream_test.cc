#include "engine/text_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "base/text.h"
#include "support/random.h"

namespace rkv::engine {
namespace {

using Strings = std::vector<std::string>;

struct Outcome {
  std::string text;
  std::string stop;
  bool operator==(const Outcome&) const = default;
};

Outcome Stream(const Strings& pieces, const Strings& stop) {
  TextStream stream(stop);
  Outcome out;
  for (const std::string& piece : pieces) {
    out.text += stream.Push(piece);
  }
  out.text += stream.Finish();
  out.stop = stream.stop_string();
  EXPECT_EQ(stream.stopped(), !out.stop.empty());
  return out;
}

// The definition, straight: clean everything, then search every stop string from the front.
Outcome OneShot(std::string_view bytes, const Strings& stop) {
  const std::string clean = ReplaceInvalidUtf8(bytes);
  Outcome out{clean, ""};
  std::size_t begin = clean.size();
  for (const std::string& text : stop) {
    const std::size_t at = text.empty() ? std::string::npos : clean.find(text);
    if (at != std::string::npos &&
        (out.stop.empty() || at < begin || (at == begin && text.size() < out.stop.size()))) {
      begin = at;
      out = {clean.substr(0, at), text};
    }
  }
  return out;
}

TEST(TextStream, PassesTextThroughAtOnce) {
  TextStream stream({});
  EXPECT_EQ(stream.Push("Hello"), "Hello");
  EXPECT_EQ(stream.Push(""), "");
  EXPECT_EQ(stream.Push(", 世界"), ", 世界");
  EXPECT_EQ(stream.Finish(), "");
  EXPECT_FALSE(stream.stopped());
}

TEST(TextStream, HoldsACharacterUntilItIsWhole) {
  TextStream stream({});
  EXPECT_EQ(stream.Push("a\xf0\x9f"), "a");
  EXPECT_EQ(stream.Push("\x9a"), "");
  EXPECT_EQ(stream.Push("\x80z\xe6\x97"), "🚀z");
  EXPECT_EQ(stream.Push("\xa5"), "日");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(TextStream, ReplacesACutCharacterByOneMark) {
  for (const char* cut : {"\xf0", "\xf0\x9f", "\xf0\x9f\x9a", "\xe6\x97", "\xc3"}) {
    EXPECT_EQ(Stream({"ok ", cut}, {}).text, "ok \xef\xbf\xbd");
  }
}

TEST(TextStream, ReplacesMalformedBytesInTheMiddle) {
  TextStream stream({});
  EXPECT_EQ(stream.Push("a\x80z"), "a\xef\xbf\xbdz");
  EXPECT_EQ(stream.Push("\xe6\x97"), "");
  EXPECT_EQ(stream.Push("b"),
            "\xef\xbf\xbd"
            "b");
  EXPECT_EQ(stream.Push("\xff\xfe"), "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(TextStream, EndsRightBeforeAStopStringAcrossTokens) {
  TextStream stream({"HIJKLMN"});
  EXPECT_EQ(stream.Push("ABCDE"), "ABCDE");
  EXPECT_EQ(stream.Push("FGH"), "FG");
  EXPECT_EQ(stream.Push("IJ"), "");
  EXPECT_EQ(stream.Push("KLM"), "");
  EXPECT_FALSE(stream.stopped());
  EXPECT_EQ(stream.Push("NOP"), "");
  EXPECT_TRUE(stream.stopped());
  EXPECT_EQ(stream.stop_string(), "HIJKLMN");
  EXPECT_EQ(stream.Push("QRS"), "");
  EXPECT_EQ(stream.Finish(), "");
}

TEST(TextStream, GivesHeldTextWhenTheStopStringDoesNotComplete) {
  TextStream stream({"\n\nUser:"});
  EXPECT_EQ(stream.Push("a\n\nUse"), "a");
  EXPECT_EQ(stream.Push("ful\n"), "\n\nUseful");
  EXPECT_EQ(stream.Push("\n"), "");
  EXPECT_EQ(stream.Finish(), "\n\n");
  EXPECT_FALSE(stream.stopped());
}

TEST(TextStream, HoldsOnlyWhatMayStillMatch) {
  TextStream stream({"aab"});
  EXPECT_EQ(stream.Push("aaaa"), "aa");
  EXPECT_EQ(stream.Push("a"), "a");
  EXPECT_EQ(stream.Push("b"), "");
  EXPECT_TRUE(stream.stopped());
}

TEST(TextStream, StopThatIsAPrefixOfAnotherWins) {
  const Outcome expected{"x", "ab"};
  EXPECT_EQ(Stream({"xa", "bc"}, {"abc", "ab"}), expected);
  EXPECT_EQ(Stream({"xabc"}, {"ab", "abc"}), expected);
  TextStream stream({"abc", "ab"});
  EXPECT_EQ(stream.Push("xab"), "x");
  EXPECT_TRUE(stream.stopped()) << "nothing later can change it";
}

TEST(TextStream, StopThatBeginsFirstWinsOverOneThatEndsFirst) {
  const Strings stop = {"bc", "abcd"};
  EXPECT_EQ(Stream({"xabc", "d"}, stop), (Outcome{"x", "abcd"}));
  EXPECT_EQ(Stream({"xabc", "e"}, stop), (Outcome{"xa", "bc"}));
  EXPECT_EQ(Stream({"xabc"}, stop), (Outcome{"xa", "bc"}));
}

TEST(TextStream, IgnoresEmptyStopStringsAndStopsAtTheFirstByte) {
  EXPECT_EQ(Stream({"abc"}, {""}), (Outcome{"abc", ""}));
  EXPECT_EQ(Stream({"abc"}, {"", "a"}), (Outcome{"", "a"}));
}

TEST(TextStream, MatchesStopStringsOfManyByteCharacters) {
  EXPECT_EQ(Stream({"a\xf0\x9f", "\x9a\x80", "b"}, {"🚀b"}), (Outcome{"a", "🚀b"}));
  EXPECT_EQ(Stream({"a\xf0\x9f", "\x9a\x81", "b"}, {"🚀b"}), (Outcome{"a🚁b", ""}));
  EXPECT_EQ(Stream({"a\xf0"}, {"\xef\xbf\xbd"}), (Outcome{"a", "\xef\xbf\xbd"}));
  EXPECT_EQ(Stream({"a\xff", "b"}, {"\xff"
                                    "b"}),
            (Outcome{"a",
                     "\xff"
                     "b"}));
}

TEST(TextStream, LongRepetitiveStopStringsCostLinearTime) {
  const std::string many(100000, 'a');
  TextStream stream({many + "b", many + "c"});
  std::size_t shown = 0;
  for (int i = 0; i < 300; ++i) {
    shown += stream.Push(std::string(1000, 'a')).size();
  }
  EXPECT_EQ(shown, 200000u);
  EXPECT_EQ(stream.Finish().size(), 100000u);
}

// Random bytes out of few letters and broken characters, cut anywhere, with random stop strings.
TEST(TextStream, EqualsTheOneShotTextForRandomCutsAndStops) {
  const Strings units = {"a",    "b",        "c",    "é",    "🚀",
                         "\x80", "\xf0\x9f", "\xe6", "\xff", "\xef\xbf\xbd"};
  Rng rng(41);
  const auto random_text = [&](std::uint64_t kinds, std::int32_t least, std::int32_t most) {
    std::string text;
    for (std::int32_t n = test::IntBetween(rng, least, most); n > 0; --n) {
      text += units[rng.Below(kinds)];
    }
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    Strings stop;
    std::size_t longest = 0;
    for (std::uint64_t n = rng.Below(4); n > 0; --n) {
      stop.push_back(random_text(2 + rng.Below(4), 1, 5));
      longest = std::max(longest, stop.back().size());
    }
    const std::string bytes = random_text(2 + rng.Below(9), 0, 24);
    const Outcome expected = OneShot(bytes, stop);
    TextStream stream(stop);
    std::string text;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t size = 1 + rng.Below(4);
      text += stream.Push(std::string_view(bytes).substr(at, size));
      at += size;
      ASSERT_EQ(FindInvalidUtf8(text), std::string::npos) << "in mid-stream";
      const std::string_view seen = std::string_view(bytes).substr(0, at);
      const std::string certain = ReplaceInvalidUtf8(seen.substr(0, CompleteUtf8Prefix(seen)));
      if (!stream.stopped()) {
        ASSERT_LE(certain.size() - text.size(), longest == 0 ? 0 : longest - 1);
      }
    }
    text += stream.Finish();
    ASSERT_EQ(text, expected.text) << "round " << round;
    ASSERT_EQ(stream.stop_string(), expected.stop) << "round " << round;
    stopped += stream.stopped() ? 1 : 0;
  }
  EXPECT_GT(stopped, 2000);
  EXPECT_LT(stopped, 18000);
}

}  // namespace
}  // namespace rkv::engine
