#include "base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

namespace rkv {
namespace {

using ::testing::HasSubstr;

class MappedFileTest : public ::testing::Test {
 protected:
  MappedFileTest() {
    std::string pattern = ::testing::TempDir() + "rkv_mapped_XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~MappedFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& content) const {
    const std::string path = folder_ + "/file";
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  std::string folder_;
};

TEST_F(MappedFileTest, HoldsTheWholeFile) {
  for (const std::size_t size : {1, 4095, 4096, 4097, 100000}) {
    std::string content(size, 'x');
    content.back() = 'y';
    const Result<MappedFile> file = MappedFile::Open(Write(content));
    ASSERT_TRUE(file);
    ASSERT_EQ(file->bytes().size(), size);
    EXPECT_EQ(std::memcmp(file->bytes().data(), content.data(), size), 0);
  }
}

TEST_F(MappedFileTest, MovesKeepTheAddress) {
  Result<MappedFile> file = MappedFile::Open(Write("hello"));
  ASSERT_TRUE(file);
  const std::byte* const data = file->bytes().data();
  MappedFile moved = *std::move(file);
  EXPECT_EQ(moved.bytes().data(), data);
  MappedFile assigned;
  EXPECT_TRUE(assigned.bytes().empty());
  assigned = std::move(moved);
  EXPECT_EQ(assigned.bytes().data(), data);
  EXPECT_EQ(assigned.bytes().size(), 5u);
}

TEST_F(MappedFileTest, EveryFailureHasItsCodeAndNamesTheFile) {
  const std::string missing = folder_ + "/missing";
  const Result<MappedFile> none = MappedFile::Open(missing);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code(), Code::kNotFound);
  EXPECT_THAT(none.error().message(), HasSubstr(missing));

  const Result<MappedFile> folder = MappedFile::Open(folder_);
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(folder.error().message(), HasSubstr(folder_));

  const Result<MappedFile> empty = MappedFile::Open(Write(""));
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code(), Code::kDataLoss);

  const std::string pipe = folder_ + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const Result<MappedFile> fifo = MappedFile::Open(pipe);  // must not wait for a writer
  ASSERT_FALSE(fifo);
  EXPECT_EQ(fifo.error().code(), Code::kInvalidArgument);

  EXPECT_EQ(MappedFile::Open("").error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace rkv
