#include "policy/option_string.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rkv::policy {
namespace {

using ::testing::HasSubstr;

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

TEST(ParseMethodString, AStringThatBeginsWithAnOptionIsComposed) {
  const MethodString given = Parse("evict=snapkv,table=/a:b");
  EXPECT_EQ(given.method, kComposed);
  ASSERT_EQ(given.options.size(), 2u);
  EXPECT_EQ(given.options[0].name, "evict");
  EXPECT_EQ(given.options[1].value, "/a:b");
}

TEST(ParseMethodString, RefusesAnOptionGivenTwice) {
  const Result<MethodString> parsed = ParseMethodString("m:a=1,b=2,a=3");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().message(), "option 'a' of method 'm' is given twice: '1' and '3'");
}

}  // namespace
}  // namespace rkv::policy
