#include "bench/child_peer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "bench/child_process.h"

namespace rkv::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

StopCheck Never() {
  return [] { return false; };
}

// A peer made of a shell script that answers the n-th line with the n-th of `answers`.
struct Script {
  explicit Script(const std::vector<std::string>& answers)
      : path(::testing::TempDir() + "rkv_child_" + std::to_string(getpid()) + ".sh") {
    std::signal(SIGPIPE, SIG_IGN);
    std::ofstream file(path);
    for (const std::string& answer : answers) {
      file << "read line || exit 0\necho '" << answer << "'\n";
    }
    file << "read line || exit 0\nexit 7\n";
  }
  ~Script() { std::remove(path.c_str()); }

  Result<std::unique_ptr<Racer>> Open() const {
    PeerOptions options;
    options.command = {"/bin/sh", path};
    return OpenChildPeer("other", options, feed, Never());
  }

  std::string path;
  TokenFeed feed = TokenFeed::Random(10, 100, 10, 1);
};

constexpr const char* kHello =
    R"({"version": "Other 2", "settings": [{"name": "u8", "kv": "u8", "default": true, "weight_bytes": 5}]})";

TEST(ChildPeer, TellsItsSettingsAndTimes) {
  const Script script({kHello, R"({"seconds": 2.5, "kv_bytes_per_token": 77})"});
  const Result<std::unique_ptr<Racer>> peer = script.Open();
  ASSERT_TRUE(peer) << peer.error().message();
  EXPECT_EQ((*peer)->version(), "Other 2");
  ASSERT_THAT((*peer)->settings(), SizeIs(1));
  EXPECT_EQ((*peer)->settings()[0].engine, "other");
  EXPECT_TRUE((*peer)->settings()[0].is_default);
  EXPECT_EQ((*peer)->settings()[0].weight_bytes, 5U);
  EXPECT_TRUE((*peer)->Fill({10, 4}).ok());
  const Result<Sample> sample = (*peer)->TimeDecode(0, 4);
  ASSERT_TRUE(sample) << sample.error().message();
  EXPECT_DOUBLE_EQ(sample->seconds, 2.5);
  EXPECT_DOUBLE_EQ(sample->kv_bytes_per_token, 77);
}

TEST(ChildPeer, ReportsWhatTheChildReports) {
  const Script broken({R"({"error": "no package"})"});
  EXPECT_EQ(broken.Open().error().message(), "no package");
  const Script partly({kHello, R"({"error": "not that", "unsupported": true})", "nonsense"});
  const Result<std::unique_ptr<Racer>> peer = partly.Open();
  ASSERT_TRUE(peer);
  EXPECT_EQ((*peer)->TimePrompt(0, 4).error().code(), Code::kUnsupported);
  EXPECT_THAT((*peer)->TimePrompt(0, 4).error().message(), HasSubstr("nonsense"));
  EXPECT_THAT((*peer)->TimePrompt(0, 4).error().message(), HasSubstr("ended with code 7"));
}

TEST(ChildPeer, NamesWhatIsMissing) {
  PeerOptions options;
  const TokenFeed feed = TokenFeed::Random(10, 10, 10, 1);
  options.command = {"/bin/sh", "/no/script.py"};
  EXPECT_THAT(OpenChildPeer("other", options, feed, Never()).error().message(),
              HasSubstr("/no/script.py"));
  options.command = {"/no/python", "/bin/sh"};
  EXPECT_THAT(OpenChildPeer("other", options, feed, Never()).error().message(),
              HasSubstr("/no/python"));
}

TEST(ChildProcess, StopsWaiting) {
  const Result<std::unique_ptr<ChildProcess>> child = ChildProcess::Start({"/bin/cat"});
  ASSERT_TRUE(child);
  EXPECT_EQ(*(*child)->Ask("hello", Never()), "hello");
  const Result<std::unique_ptr<ChildProcess>> silent =
      ChildProcess::Start({"/bin/sh", "-c", "read a; read b"});
  ASSERT_TRUE(silent);
  EXPECT_EQ((*silent)->Ask("hello", [] { return true; }).error().code(), Code::kCancelled);
}

}  // namespace
}  // namespace rkv::bench
