#include "policy/option_visitor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace rkv::policy {
namespace {

using ::testing::HasSubstr;

constexpr std::array<std::string_view, 2> kPlaces = {"left", "right"};

// A method's options, as a method shows them.
struct Sample {
  std::int32_t count = 5;
  std::int32_t width = 1;
  double share = -1;
  double factor = 2;
  std::size_t place = 0;
  bool strict = false;
  std::string file;

  void Show(OptionVisitor& options) {
    options.Int("count", count, {.low = 16, .high = 20, .automatic = true}, "how many");
    options.Int("width", width, {.low = 1, .high = 9, .odd = true}, "how wide");
    options.Number("share", share, {.low = 0, .high = 1, .automatic = true}, "which part");
    options.Number("factor", factor, {.low = 1, .high = 64}, "how often");
    options.Choice("place", place, kPlaces, "where");
    options.Switch("strict", strict, "whether");
    options.Text("file", file, "what from");
  }
};

Status Read(std::string_view name, std::string_view text, Sample& sample) {
  const MethodString given{"m", {{std::string(name), std::string(text)}}};
  OptionReader reader(given);
  sample.Show(reader);
  return reader.Finish();
}

std::string Error(std::string_view name, std::string_view text) {
  Sample sample;
  const Status status = Read(name, text, sample);
  EXPECT_EQ(status.code(), Code::kInvalidArgument) << name << '=' << text;
  OptionPrinter before, after;
  Sample untouched;
  untouched.Show(before);
  sample.Show(after);
  EXPECT_EQ(before.text, after.text) << "a refused value changes nothing";
  return status.message();
}

TEST(OptionReader, ReadsWhatIsGivenAndLeavesTheRest) {
  const MethodString given{
      "m",
      {{"width", "7"}, {"share", "0.25"}, {"place", "right"}, {"strict", "yes"}, {"file", "f"}}};
  OptionReader reader(given);
  Sample sample;
  sample.Show(reader);
  EXPECT_TRUE(reader.Finish().ok()) << reader.Finish().message();
  EXPECT_EQ(sample.count, 5);
  EXPECT_EQ(sample.width, 7);
  EXPECT_EQ(sample.share, 0.25);
  EXPECT_EQ(sample.factor, 2);
  EXPECT_EQ(sample.place, 1u);
  EXPECT_TRUE(sample.strict);
  EXPECT_EQ(sample.file, "f");
}

TEST(OptionReader, TakesTheBoundsThemselves) {
  for (const auto& [text, value] :
       {std::pair("16", 16), std::pair("20", 20), std::pair("auto", 0)}) {
    Sample sample;
    EXPECT_TRUE(Read("count", text, sample).ok());
    EXPECT_EQ(sample.count, value);
  }
  for (const auto& [text, value] :
       {std::pair("0", 0.0), std::pair("1", 1.0), std::pair("auto", -1.0)}) {
    Sample sample;
    EXPECT_TRUE(Read("share", text, sample).ok());
    EXPECT_EQ(sample.share, value);
  }
  for (const auto& [text, value] :
       {std::pair("1", 1.0), std::pair("1.6", 1.6), std::pair("64", 64.0)}) {
    Sample sample;
    EXPECT_TRUE(Read("factor", text, sample).ok());
    EXPECT_EQ(sample.factor, value);
  }
}

TEST(OptionReader, RefusesNumbersThatAreNoneOrOutOfRange) {
  for (const char* text :
       {"15", "21", "-17", "17.5", "17x", "x", " 17", "0x11", "99999999999", "+17", "1e1"}) {
    EXPECT_EQ(Error("count", text), std::string("option 'count' of method 'm' is '") + text +
                                        "', allowed: auto or a whole number from 16 to 20");
  }
  for (const char* text : {"2", "0", "10", "auto"}) {
    EXPECT_THAT(Error("width", text), HasSubstr("allowed: an odd whole number from 1 to 9"));
  }
  for (const char* text : {"-0.1", "1.01", "nan", "inf", "half", "0,5", "0.5x"}) {
    EXPECT_EQ(Error("share", text), std::string("option 'share' of method 'm' is '") + text +
                                        "', allowed: auto or a number from 0 to 1");
  }
  for (const char* text : {"0.99", "64.1", "nan", "inf", "auto", "1.6x"}) {
    EXPECT_THAT(Error("factor", text), HasSubstr("allowed: a number from 1 to 64"));
  }
}

TEST(OptionReader, RefusesOtherWords) {
  EXPECT_EQ(Error("place", "up"), "option 'place' of method 'm' is 'up', allowed: left or right");
  EXPECT_THAT(Error("strict", "true"), HasSubstr("allowed: no or yes"));
}

TEST(OptionReader, TheFirstErrorSticks) {
  const MethodString given{"m", {{"width", "4"}, {"count", "x"}, {"other", "1"}}};
  OptionReader reader(given);
  Sample sample;
  sample.Show(reader);
  EXPECT_THAT(reader.Finish().message(), HasSubstr("option 'count'"));
}

TEST(OptionReader, UnknownOptionsListTheNearestAndAll) {
  const std::string known = "known: count, width, share, factor, place, strict, file";
  EXPECT_EQ(Error("cuont", "1"),
            "method 'm' has no option 'cuont'; did you mean 'count'? " + known);
  EXPECT_EQ(Error("zzzzzz", "1"), "method 'm' has no option 'zzzzzz'; " + known);
  const MethodString given{"m", {{"a", "1"}}};
  EXPECT_EQ(OptionReader(given).Finish().message(), "method 'm' has no option 'a', it takes none");
}

TEST(OptionPrinter, SpellsEveryOptionOut) {
  Sample sample;
  sample.count = 0;
  OptionPrinter printer;
  sample.Show(printer);
  EXPECT_EQ(printer.text, "count=auto,width=1,share=auto,factor=2,place=left,strict=no");
  sample.file = "x";
  OptionPrinter again;
  sample.Show(again);
  EXPECT_THAT(again.text, HasSubstr(",file=x"));
}

TEST(OptionLister, NamesDefaultsAndRanges) {
  Sample sample;
  OptionLister lister;
  sample.Show(lister);
  ASSERT_EQ(lister.options.size(), 7u);
  EXPECT_EQ(lister.options[2].name, "share");
  EXPECT_EQ(lister.options[2].default_value, "auto");
  EXPECT_EQ(lister.options[2].help, "which part; auto or a number from 0 to 1");
  EXPECT_EQ(lister.options[4].help, "where; left or right");
}

}  // namespace
}  // namespace rkv::policy
