#include "bench/child_peer.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/busy_watch.h"
#include "bench/child_process.h"

namespace rkv::bench {
namespace {

using Json = nlohmann::json;

template <class T>
T Field(const Json& json, const char* key, T otherwise) {
  const auto found = json.find(key);
  try {
    return found == json.end() ? otherwise : found->get<T>();
  } catch (const Json::exception&) {  // of another type
    return otherwise;
  }
}

class ChildPeer : public Racer {
 public:
  ChildPeer(std::string engine, const TokenFeed& feed, StopCheck stop,
            std::unique_ptr<ChildProcess> child)
      : engine_(std::move(engine)), feed_(feed), stop_(std::move(stop)), child_(std::move(child)) {}

  Status Open(const PeerOptions& options) {
    const Result<Json> answer = Ask({{"op", "open"},
                                     {"model", options.model_path},
                                     {"threads", options.threads},
                                     {"context", options.context},
                                     {"kv_numbers_per_token", options.kv_numbers_per_token},
                                     {"settings", options.settings}});
    if (!answer) {
      return answer.error();
    }
    version_ = Field(*answer, "version", std::string());
    for (const Json& setting : Field(*answer, "settings", Json::array())) {
      settings_.push_back({.engine = engine_,
                           .name = Field(setting, "name", std::string()),
                           .kv = Field(setting, "kv", std::string()),
                           .peer = true,
                           .is_default = Field(setting, "default", false),
                           .weight_bytes = options.weight_bytes != 0
                                               ? options.weight_bytes
                                               : Field(setting, "weight_bytes", std::uint64_t{0})});
    }
    return settings_.empty() ? Status(Code::kInternal, "the process has no settings") : Status();
  }

  std::span<const Setting> settings() const override { return settings_; }
  std::string version() const override { return version_; }
  double child_cpu_seconds() const override { return ProcessCpuSeconds(child_->pid()); }

  Status Fill(const Start& start) override {
    depth_ = start.depth;
    return {};
  }

  Result<Sample> TimePrompt(std::size_t setting, std::int32_t tokens) override {
    return Time({{"op", "prompt"},
                 {"setting", setting},
                 {"depth", depth_},
                 {"ids", feed_.prompt(0, depth_ + tokens)}});
  }

  Result<Sample> TimeDecode(std::size_t setting, std::int32_t tokens) override {
    return Time({{"op", "decode"},
                 {"setting", setting},
                 {"ids", feed_.prompt(0, depth_)},
                 {"tokens", tokens}});
  }

 private:
  Result<Sample> Time(const Json& request) {
    const Result<Json> answer = Ask(request);
    if (!answer) {
      return answer.error();
    }
    Sample sample;
    sample.seconds = Field(*answer, "seconds", 0.0);
    sample.kv_bytes_per_token = Field(*answer, "kv_bytes_per_token", 0.0);
    return sample.seconds > 0 ? Result<Sample>(sample)
                              : Status(Code::kInternal, "the process answered without a time");
  }

  // An answer that is no error.
  Result<Json> Ask(const Json& request) {
    const Result<std::string> line = child_->Ask(request.dump(), stop_);
    if (!line) {
      return line.error();
    }
    Json answer = Json::parse(*line, nullptr, false);
    if (!answer.is_object()) {
      return Status(Code::kInternal, fmt::format("the process answered '{}'", line->substr(0, 80)));
    }
    if (answer.contains("error")) {
      return Status(Field(answer, "unsupported", false) ? Code::kUnsupported : Code::kInternal,
                    Field(answer, "error", std::string("an error without a text")));
    }
    return answer;
  }

  std::string engine_;
  const TokenFeed& feed_;
  StopCheck stop_;
  std::unique_ptr<ChildProcess> child_;
  std::string version_;
  std::vector<Setting> settings_;
  std::int32_t depth_ = 0;
};

}  // namespace

std::vector<std::string> OpenVinoSettings() { return {"u8", "f16", "u8-evict"}; }

Result<std::unique_ptr<Racer>> OpenChildPeer(const std::string& engine, const PeerOptions& options,
                                             const TokenFeed& feed, const StopCheck& stop) {
  const std::string& script = options.command.back();
  std::error_code ignored;
  if (!std::filesystem::exists(script, ignored)) {
    return Status(Code::kNotFound, fmt::format("{}: no such file", script));
  }
  Result<std::unique_ptr<ChildProcess>> child = ChildProcess::Start(options.command);
  if (!child) {
    return child.error();
  }
  auto peer = std::make_unique<ChildPeer>(engine, feed, stop, *std::move(child));
  const Status status = peer->Open(options);
  if (!status.ok()) {
    return status;
  }
  return std::unique_ptr<Racer>(std::move(peer));
}

}  // namespace rkv::bench
