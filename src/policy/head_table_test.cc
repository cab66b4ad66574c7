#include "policy/head_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace rkv::policy {
namespace {

using ::testing::HasSubstr;

const HeadTable kTable = {.method = "duo",
                          .model = "llama tiny",
                          .layers = 2,
                          .kv_heads = 3,
                          .scores = {.5f, .25f, 1.0f, .5f, 0.0f, 1.0f}};

std::string Error(std::string_view text) {
  const auto table = ParseHeadTable(text);
  EXPECT_FALSE(table) << text;
  return table ? "" : table.error().message();
}

// The table's text with one part replaced.
std::string With(const std::string& from, const std::string& to) {
  std::string text = HeadTableJson(kTable);
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(HeadTable, ReadsWhatItWrites) {
  const auto table = ParseHeadTable(HeadTableJson(kTable));
  ASSERT_TRUE(table) << table.error().message();
  EXPECT_EQ(table->method, "duo");
  EXPECT_EQ(table->model, "llama tiny");
  EXPECT_EQ(table->layers, 2);
  EXPECT_EQ(table->kv_heads, 3);
  EXPECT_EQ(table->scores, kTable.scores);
  EXPECT_EQ(HeadTableJson(*table), HeadTableJson(kTable));
}

TEST(HeadTable, RanksEqualScoresByPlace) {
  EXPECT_EQ(kTable.Ranks(), (std::vector<std::int32_t>{2, 4, 0, 3, 5, 1}));
}

TEST(HeadTable, SaysWhatIsWrong) {
  for (const char* text : {"", "{", "[]", "7", "null", "{} x"}) {
    EXPECT_EQ(Error(text), "it is no JSON object") << text;
  }
  EXPECT_THAT(Error("{}"), HasSubstr("\"format\" must be \"rkv-head-table\""));
  EXPECT_THAT(Error(With("rkv-head-table", "x")), HasSubstr("\"format\""));
  EXPECT_THAT(Error(With("\"version\":1", "\"version\":2")), HasSubstr("\"version\" must be 1"));
  EXPECT_THAT(Error(With("\"duo\"", "7")), HasSubstr("\"method\" must be a text"));
  EXPECT_THAT(Error(With("\"model\"", "\"mo\"")), HasSubstr("\"model\" must be a text"));
  for (const char* side : {"0", "-1", "1.5", "\"2\"", "70000", "18446744073709551615", "null"}) {
    EXPECT_THAT(Error(With("\"layers\":2", std::string("\"layers\":") + side)),
                HasSubstr("\"layers\" must be a whole number from 1"))
        << side;
  }
  EXPECT_THAT(Error(With("\"layers\":2", "\"layers\":3")), HasSubstr("must be 3 lists"));
  EXPECT_THAT(Error(With("\"kv_heads\":3", "\"kv_heads\":4")),
              HasSubstr("of layer 0 must be 4 numbers"));
  EXPECT_THAT(Error(With("\"scores\":[[0.5,0.25,1.0]", "\"scores\":[7")),
              HasSubstr("of layer 0 must be 3 numbers"));
  for (const char* score : {"null", "\"a\"", "1e39", "[1]", "true"}) {
    EXPECT_THAT(Error(With("[0.5,0.0,1.0]", std::string("[0.5,") + score + ",1.0]")),
                HasSubstr("layer 1, KV head 1 is no number"))
        << score;
  }
}

TEST(HeadTable, FilesAreNamedInErrors) {
  const std::string path = ::testing::TempDir() + "rkv_head_table_test.json";
  const auto missing = LoadHeadTable("/nonexistent/table.json", "duo");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr("'/nonexistent/table.json'"));
  EXPECT_FALSE(LoadHeadTable("/", "duo"));
  const auto write = [&](const std::string& text) {
    std::FILE* const file = std::fopen(path.c_str(), "wb");
    ASSERT_NE(file, nullptr);
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
  };
  write("{}");
  EXPECT_THAT(LoadHeadTable(path, "duo").error().message(), HasSubstr(path + "': \"format\""));
  write(HeadTableJson(kTable));
  EXPECT_TRUE(LoadHeadTable(path, "duo"));
  EXPECT_THAT(LoadHeadTable(path, "catekv").error().message(),
              HasSubstr("is for method 'duo', not for 'catekv'"));
  std::remove(path.c_str());
}

TEST(HeadTable, BelongsToOneModel) {
  TurnShape shape = {.kv_heads = 3, .layers = 2, .model = "llama tiny"};
  EXPECT_TRUE(CheckHeadTable(kTable, shape).ok());
  shape.model = "llama huge";
  const Status other = CheckHeadTable(kTable, shape);
  EXPECT_EQ(other.code(), Code::kInvalidArgument);
  EXPECT_THAT(other.message(), HasSubstr("'llama tiny'"));
  EXPECT_THAT(other.message(), HasSubstr("'llama huge'"));
  shape.model = "llama tiny";
  shape.layers = 3;
  EXPECT_FALSE(CheckHeadTable(kTable, shape).ok());
}

}  // namespace
}  // namespace rkv::policy
