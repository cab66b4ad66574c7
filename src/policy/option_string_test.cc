#include "policy/option_string.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rkv::policy {
namespace {

using ::testing::HasSubstr;

const std::vector<OptionInfo> kKnown = {
    {"count", "1", ""}, {"width", "3", ""}, {"share", "auto", ""}, {"place", "left", ""}};

MethodString Parse(std::string_view spec) {
  Result<MethodString> parsed = ParseMethodString(spec);
  EXPECT_TRUE(parsed) << spec;
  return *std::move(parsed);
}

TEST(ParseMethodString, SplitsNameAndOptions) {
  EXPECT_EQ(Parse("full").method, "full");
  EXPECT_TRUE(Parse("full").options.empty());
  EXPECT_EQ(Parse("").method, "");
  const MethodString given = Parse("m:a=1,b=x=y");
  EXPECT_EQ(given.method, "m");
  ASSERT_EQ(given.options.size(), 2u);
  EXPECT_EQ(given.options[0].name, "a");
  EXPECT_EQ(given.options[0].value, "1");
  EXPECT_EQ(given.options[1].name, "b");
  EXPECT_EQ(given.options[1].value, "x=y");
}

TEST(ParseMethodString, RefusesWhatIsNotNameEqualsValue) {
  for (const char* spec : {"m:", "m:a", "m:=1", "m:a=", "m:a=1,", "m:a=1,,b=2", "m:,a=1"}) {
    const Result<MethodString> parsed = ParseMethodString(spec);
    ASSERT_FALSE(parsed) << spec;
    EXPECT_EQ(parsed.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(parsed.error().message(), HasSubstr("is not of the form name=value"));
  }
}

TEST(ParseMethodString, RefusesAnOptionGivenTwice) {
  const Result<MethodString> parsed = ParseMethodString("m:a=1,b=2,a=3");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().message(), "option 'a' of method 'm' is given twice: '1' and '3'");
}

TEST(OptionReader, ReadsWhatIsGivenAndLeavesTheRest) {
  const MethodString given = Parse("m:count=auto,width=7,share=0.25,place=right");
  OptionReader reader(given, kKnown);
  std::int32_t count = 5;
  std::int32_t width = 1;
  std::int32_t other = 9;
  double share = -1;
  bool right = false;
  reader.Int("count", {.low = 1, .high = 10, .automatic = true}, count);
  reader.Int("width", {.low = 1, .high = 9, .odd = true}, width);
  reader.Int("other", {.low = 1, .high = 1}, other);
  reader.FractionOrAuto("share", share);
  reader.Choice("place", "right", "left", right);
  EXPECT_TRUE(reader.status().ok()) << reader.status().message();
  EXPECT_EQ(count, 0);
  EXPECT_EQ(width, 7);
  EXPECT_EQ(other, 9);
  EXPECT_EQ(share, 0.25);
  EXPECT_TRUE(right);
}

TEST(OptionReader, TakesTheBoundsThemselves) {
  for (const auto& [text, value] : {std::pair("16", 16), std::pair("20", 20)}) {
    const MethodString given = Parse(std::string("m:count=") + text);
    OptionReader reader(given, kKnown);
    std::int32_t count = 0;
    reader.Int("count", {.low = 16, .high = 20}, count);
    EXPECT_TRUE(reader.status().ok());
    EXPECT_EQ(count, value);
  }
  for (const auto& [text, value] :
       {std::pair("0", 0.0), std::pair("1", 1.0), std::pair("auto", -1.0)}) {
    const MethodString given = Parse(std::string("m:share=") + text);
    OptionReader reader(given, kKnown);
    double share = 0.5;
    reader.FractionOrAuto("share", share);
    EXPECT_TRUE(reader.status().ok());
    EXPECT_EQ(share, value);
  }
}

TEST(OptionReader, RefusesNumbersThatAreNoneOrOutOfRange) {
  for (const char* text : {"15", "21", "-17", "17.5", "17x", "x", " 17", "0x11", "99999999999",
                           "auto", "+17", "1e1"}) {
    const MethodString given = Parse(std::string("m:count=") + text);
    OptionReader reader(given, kKnown);
    std::int32_t count = 3;
    reader.Int("count", {.low = 16, .high = 20}, count);
    EXPECT_EQ(reader.status().message(), std::string("option 'count' of method 'm' is '") + text +
                                             "', allowed: a whole number from 16 to 20");
    EXPECT_EQ(count, 3);
  }
  for (const char* text : {"-0.1", "1.01", "nan", "inf", "half", "0,5", "0.5x"}) {
    const MethodString given{"m", {{"share", text}}};
    OptionReader reader(given, kKnown);
    double share = 3;
    reader.FractionOrAuto("share", share);
    EXPECT_EQ(reader.status().message(), std::string("option 'share' of method 'm' is '") + text +
                                             "', allowed: auto or a number from 0 to 1");
    EXPECT_EQ(share, 3);
  }
}

TEST(OptionReader, TakesNumbersWithinTheirBounds) {
  for (const auto& [text, value] :
       {std::pair("1", 1.0), std::pair("1.6", 1.6), std::pair("64", 64.0)}) {
    const MethodString given{"m", {{"share", text}}};
    OptionReader reader(given, kKnown);
    double number = 0;
    reader.Number("share", 1, 64, number);
    EXPECT_TRUE(reader.status().ok());
    EXPECT_EQ(number, value);
  }
  for (const char* text : {"0.99", "64.1", "nan", "inf", "auto", "1.6x", ""}) {
    const MethodString given{"m", {{"share", text}}};
    OptionReader reader(given, kKnown);
    double number = 3;
    reader.Number("share", 1, 64, number);
    EXPECT_EQ(reader.status().message(), std::string("option 'share' of method 'm' is '") + text +
                                             "', allowed: a number from 1 to 64");
    EXPECT_EQ(number, 3);
  }
}

TEST(OptionReader, NamesOddAndAutomaticRanges) {
  const MethodString given = Parse("m:width=4");
  OptionReader reader(given, kKnown);
  std::int32_t width = 0;
  reader.Int("width", {.low = 1, .high = 9, .odd = true, .automatic = true}, width);
  EXPECT_THAT(reader.status().message(), HasSubstr("auto or an odd whole number from 1 to 9"));
}

TEST(OptionReader, RefusesOtherWords) {
  const MethodString given = Parse("m:place=up");
  OptionReader reader(given, kKnown);
  bool right = false;
  reader.Choice("place", "right", "left", right);
  EXPECT_EQ(reader.status().message(),
            "option 'place' of method 'm' is 'up', allowed: left or right");
}

TEST(OptionReader, TheFirstErrorSticks) {
  const MethodString given = Parse("m:count=x,width=4");
  OptionReader reader(given, kKnown);
  std::int32_t value = 0;
  reader.Int("count", {.low = 1, .high = 2}, value);
  const std::string first = reader.status().message();
  reader.Int("width", {.low = 1, .high = 9, .odd = true}, value);
  reader.Refuse("width", "nothing");
  EXPECT_EQ(reader.status().message(), first);
}

TEST(OptionReader, UnknownOptionsListTheNearestAndAll) {
  const MethodString typo = Parse("m:cuont=1");
  EXPECT_EQ(OptionReader(typo, kKnown).status().message(),
            "method 'm' has no option 'cuont'; did you mean 'count'? known: count, width, share, "
            "place");
  const MethodString far_off = Parse("m:zzzzzz=1");
  EXPECT_EQ(OptionReader(far_off, kKnown).status().message(),
            "method 'm' has no option 'zzzzzz'; known: count, width, share, place");
  EXPECT_EQ(OptionReader(typo, {}).status().message(),
            "method 'm' has no option 'cuont', it takes none");
}

}  // namespace
}  // namespace rkv::policy
