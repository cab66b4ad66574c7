// A head table in a file, for tests of methods that need one.
#ifndef RKV_TESTS_SUPPORT_HEAD_TABLE_FILE_H_
#define RKV_TESTS_SUPPORT_HEAD_TABLE_FILE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "policy/head_table.h"

namespace rkv::test {

// Written on construction, removed at the end.
class HeadTableFile {
 public:
  explicit HeadTableFile(const policy::HeadTable& table)
      : path_(::testing::TempDir() + "rkv_table_" + std::to_string(getpid()) + "_" +
              std::to_string(next_++) + ".json") {
    std::FILE* const file = std::fopen(path_.c_str(), "wb");
    EXPECT_NE(file, nullptr) << path_;
    const std::string text = policy::HeadTableJson(table);
    std::fwrite(text.data(), 1, text.size(), file);
    std::fclose(file);
  }
  ~HeadTableFile() { std::remove(path_.c_str()); }
  HeadTableFile(const HeadTableFile&) = delete;
  HeadTableFile& operator=(const HeadTableFile&) = delete;

  const std::string& path() const { return path_; }

 private:
  inline static int next_ = 0;
  std::string path_;
};

// The name of a method with what it cannot do without: "duo" with a table of two KV heads in one
// layer, for the layers of tests.
inline std::string WithTable(const std::string& name) {
  if (name != "duo") {
    return name;
  }
  static const HeadTableFile kFile(
      {.method = "duo", .model = "", .layers = 1, .kv_heads = 2, .scores = {0.25f, 0.75f}});
  return name + ":table=" + kFile.path();
}

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_HEAD_TABLE_FILE_H_
