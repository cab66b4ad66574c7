#include "cli/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/testing/command_runner.h"

namespace rkv::cli {
namespace {

using ::testing::HasSubstr;

TEST(ReadDocument, ReadsFilesAndStandardInput) {
  const TestFile file("text\n");
  EXPECT_EQ(*ReadDocument(file.path(), -1), "text\n");
  EXPECT_EQ(*ReadDocument("-", file.fd()), "text\n");
}

TEST(ReadDocument, DropsTheByteOrderMark) {
  const TestFile file("\xef\xbb\xbftext");
  EXPECT_EQ(*ReadDocument(file.path(), -1), "text");
}

TEST(ReadDocument, NamesTheByteThatIsNotUtf8) {
  const TestFile file("caf\xe9 au lait");
  const Result<std::string> text = ReadDocument(file.path(), -1);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(text.error().message(), HasSubstr("byte 0xe9 at offset 3"));
}

TEST(ReadDocument, NamesWhatCannotBeRead) {
  EXPECT_THAT(ReadDocument("/no/such/file", -1).error().message(), HasSubstr("/no/such/file"));
  EXPECT_THAT(ReadDocument("/tmp", -1).error().message(), HasSubstr("/tmp is a folder"));
  const TestFile empty("");
  EXPECT_THAT(ReadDocument(empty.path(), -1).error().message(), HasSubstr("is empty"));
}

TEST(JoinDocument, PutsABlankLineBetween) {
  EXPECT_EQ(JoinDocument("doc", "q"), "doc\n\nq");
  EXPECT_EQ(JoinDocument("doc\n", "q"), "doc\n\nq");
  EXPECT_EQ(JoinDocument("doc\n", ""), "doc\n");
  EXPECT_EQ(JoinDocument("", "q"), "q");
}

}  // namespace
}  // namespace rkv::cli
