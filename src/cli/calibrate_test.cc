#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "cli/testing/command_runner.h"

namespace rkv::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kTable = "{\"scores\":[[0,0.5],[0.25,1]]}\n";

class Calibrate : public ::testing::Test {
 protected:
  Calibrate() : folder_(::testing::TempDir() + "rkv_calibrate_" + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~Calibrate() override { std::filesystem::remove_all(folder_); }

  static std::string Read(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  // Files in the folder.
  std::size_t Files() const {
    const std::filesystem::directory_iterator all(folder_);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

  std::string folder_;
  CommandRunner r_;
};

TEST_F(Calibrate, WritesTheTable) {
  const std::string path = folder_ + "/duo.json";
  const Outcome o = r_.Run({"calibrate", "duo", "-m", "m.gguf", "-o", path, "-t", "2"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "");
  EXPECT_THAT(o.err, HasSubstr("2 layers x 2 KV heads of Fake to " + path));
  EXPECT_THAT(o.err, HasSubstr("--kv duo:table=" + path));
  EXPECT_EQ(Read(path), kTable);
  EXPECT_EQ(Files(), 1u);
  EXPECT_THAT(r_.script.calibrated, ElementsAre("duo"));
}

TEST_F(Calibrate, ReplacesAnOlderTableOnlyWhenItIsDone) {
  const std::string path = folder_ + "/duo.json";
  std::ofstream(path) << "old";
  r_.script.prefill_status = Status(Code::kInvalidArgument, "too long");
  const Outcome failed = r_.Run({"calibrate", "duo", "-m", "m.gguf", "-o", path});
  EXPECT_EQ(failed.code, 1);
  EXPECT_THAT(failed.err, HasSubstr("too long"));
  EXPECT_EQ(Read(path), "old");
  EXPECT_EQ(Files(), 1u);
  r_.script.prefill_status = {};
  EXPECT_EQ(r_.Run({"calibrate", "duo", "-m", "m.gguf", "-o", path}).code, 0);
  EXPECT_EQ(Read(path), kTable);
  EXPECT_EQ(Files(), 1u);
}

TEST_F(Calibrate, TakesATextAndWritesToStandardOutput) {
  const TestFile text("Some text.");
  const Outcome o = r_.Run({"calibrate", "catekv", "m.gguf", "-f", text.path(), "-o", "-"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, kTable);
  EXPECT_THAT(r_.script.calibrated, ElementsAre("catekv", "Some text."));
}

TEST_F(Calibrate, FailsBeforeTheWorkWhereItCannotWrite) {
  for (const std::string& path : {folder_ + "/none/duo.json", folder_}) {
    const Outcome o = r_.Run({"calibrate", "duo", "-m", "m.gguf", "-o", path});
    EXPECT_EQ(o.code, 1);
    EXPECT_THAT(o.err, HasSubstr("cannot write " + path));
  }
  EXPECT_TRUE(r_.script.calibrated.empty());
  EXPECT_EQ(Files(), 0u);
}

TEST_F(Calibrate, WritesToADeviceItself) {
  EXPECT_EQ(r_.Run({"calibrate", "duo", "-m", "m.gguf", "-o", "/dev/null"}).code, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(Calibrate, SaysWhatIsMissing) {
  const Outcome no_method = r_.Run({"calibrate", "-m", "m.gguf", "-o", "x"});
  EXPECT_EQ(no_method.code, 2);
  EXPECT_THAT(no_method.err, HasSubstr("calibrate needs a method first: rkv calibrate duo"));
  const Outcome no_output = r_.Run({"calibrate", "duo", "-m", "m.gguf"});
  EXPECT_EQ(no_output.code, 2);
  EXPECT_THAT(no_output.err, HasSubstr("give -o FILE"));
  EXPECT_EQ(r_.Run({"calibrate", "duo", "-m", "m.gguf", "-o", "x", "--kv", "full"}).code, 2);
  EXPECT_THAT(r_.Run({"calibrate", "--help"}).out, HasSubstr("--output"));
  EXPECT_THAT(r_.Run({"help", "calibrate"}).out, HasSubstr("measure a model's heads"));
}

}  // namespace
}  // namespace rkv::cli
