// Runs a whole command line against the fake engine with files as its terminal.
#ifndef RKV_CLI_TESTING_COMMAND_RUNNER_H_
#define RKV_CLI_TESTING_COMMAND_RUNNER_H_

#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/testing/fake_racer.h"
#include "cli/commands.h"
#include "cli/testing/fake_engine.h"

namespace rkv::cli {

// An anonymous file.
class TestFile {
 public:
  explicit TestFile(std::string_view text = "") : fd_(memfd_create("test", 0)) {
    for (std::size_t done = 0; done < text.size();) {
      done += static_cast<std::size_t>(write(fd_, text.data() + done, text.size() - done));
    }
    lseek(fd_, 0, SEEK_SET);
  }
  ~TestFile() { close(fd_); }
  TestFile(const TestFile&) = delete;
  TestFile& operator=(const TestFile&) = delete;

  int fd() const { return fd_; }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }
  std::string Text() const {
    std::string text(static_cast<std::size_t>(lseek(fd_, 0, SEEK_END)), '\0');
    text.resize(static_cast<std::size_t>(pread(fd_, text.data(), text.size(), 0)));
    return text;
  }

 private:
  int fd_;
};

struct Outcome {
  int code;
  std::string out;
  std::string err;
};

struct CommandRunner {
  FakeScript script;
  std::string input;
  std::map<std::string, std::string> environment;
  Status peer_status;
  std::vector<bench::PeerOptions> peers_opened;
  std::vector<std::string> peer_log;
  Status explain_status;
  std::vector<ExplainShape> explained;
  int out_fd = -1;  // instead of a file of the runner

  Outcome Run(const std::vector<std::string>& args) {
    const TestFile in(input);
    const TestFile out;
    const TestFile err;
    Console console = {LineInput(in.fd()), Output(out_fd >= 0 ? out_fd : out.fd()),
                       Output(err.fd())};
    const int code = Main(args, Environment(), Api(), console);
    return {code, out.Text(), err.Text()};
  }

  GetEnv Environment() const {
    return [this](const char* name) -> const char* {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second.c_str();
    };
  }

  EngineApi Api() {
    EngineApi api;
    api.open = [this](const EngineOptions& options) -> Result<std::unique_ptr<Engine>> {
      script.opened = options;
      if (!script.open_status.ok()) {
        return script.open_status;
      }
      return std::unique_ptr<Engine>(std::make_unique<FakeEngine>(options, script));
    };
    api.check_policy = [](std::string_view policy) {
      return policy.starts_with("rocketkv") || policy.starts_with("full")
                 ? Status()
                 : Status(Code::kInvalidArgument, "no such method");
    };
    api.describe_policies = [] {
      return std::vector<PolicyDescription>{
          {"full", "everything", "everything", "", "-", {{"size", "7", "a size"}}}};
    };
    api.explain_policy = [this](std::string_view policy, const ExplainShape& shape) {
      explained.push_back(shape);
      return FakeNumbers(policy, shape);
    };
    api.open_shape = [this](std::string_view shape, const EngineOptions& options) {
      script.opened = options;
      script.shape = shape;
      return Result<std::unique_ptr<Engine>>(std::make_unique<FakeEngine>(options, script));
    };
    api.known_shapes = {"tiny", "huge"};
    api.peers = {{"rival",
                  {"fast", "slow"},
                  false,
                  [this](const bench::PeerOptions& options, const bench::TokenFeed&,
                         const bench::StopCheck&) { return OpenPeer(options); }}};
    api.probe_bytes = std::size_t{1} << 20;
    api.version = "1.2.3";
    api.source_dir = "/nonexistent";
    return api;
  }

  // Full-KV holds and reads all rows of 100 bytes, everything else a tenth of them.
  Result<PolicyNumbers> FakeNumbers(std::string_view policy, const ExplainShape& shape) const {
    if (!explain_status.ok()) {
      return explain_status;
    }
    PolicyNumbers numbers;
    numbers.policy = std::string(policy) + ",spelled=out";
    numbers.rows_held = policy == "full" ? shape.context : 0.1 * shape.context;
    numbers.rows_read = numbers.rows_held;
    numbers.bytes_held = 100 * numbers.rows_held;
    numbers.bytes_read = 100 * numbers.rows_held;
    if (policy != "full") {
      numbers.numbers = {{"c", 2.5}, {"topk", 512}};
      numbers.rows_estimate = 7;
      numbers.bytes_index = 70;
    }
    return numbers;
  }

  Result<std::unique_ptr<bench::Racer>> OpenPeer(const bench::PeerOptions& options) {
    peers_opened.push_back(options);
    if (!peer_status.ok()) {
      return peer_status;
    }
    return std::unique_ptr<bench::Racer>(std::make_unique<bench::FakeRacer>(
        std::vector<bench::Setting>{
            {.engine = "rival", .name = "fast", .kv = "f16", .peer = true, .is_default = true}},
        peer_log));
  }
};

}  // namespace rkv::cli

#endif  // RKV_CLI_TESTING_COMMAND_RUNNER_H_
