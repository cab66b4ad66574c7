// A racer that writes down its calls and takes no time.
#ifndef RKV_BENCH_TESTING_FAKE_RACER_H_
#define RKV_BENCH_TESTING_FAKE_RACER_H_

#include <string>
#include <utility>
#include <vector>

#include "bench/racer.h"

namespace rkv::bench {

class FakeRacer : public Racer {
 public:
  FakeRacer(std::vector<Setting> settings, std::vector<std::string>& log)
      : settings_(std::move(settings)), log_(log) {}

  std::span<const Setting> settings() const override { return settings_; }
  std::string version() const override { return settings_[0].engine + " 1.0"; }
  Status Fill(const Start& start) override {
    log_.push_back(settings_[0].engine + " fill " + std::to_string(start.depth) + "+" +
                   std::to_string(start.new_tokens));
    return {};
  }
  Result<Sample> TimePrompt(std::size_t setting, std::int32_t tokens) override {
    return Time(setting, "pp", tokens, {{"prefill.linear", 0.5 * tokens}, {"decode.linear", 1.0}});
  }
  Result<Sample> TimeDecode(std::size_t setting, std::int32_t tokens) override {
    return Time(setting, "tg", tokens, {{"decode.attend", 0.75 * tokens}});
  }

  double seconds_per_token = 1;
  double kv_bytes = 100;
  Status decode_status;                // of every decode test
  std::size_t calls_until_end = 1000;  // then everything is cancelled

 private:
  Result<Sample> Time(std::size_t setting, const std::string& what, std::int32_t tokens,
                      std::map<std::string, double> stages) {
    if (calls_until_end-- == 0) {
      return Status(Code::kCancelled, "interrupted");
    }
    log_.push_back(settings_[setting].engine + settings_[setting].name + " " + what +
                   std::to_string(tokens));
    if (what == "tg" && !decode_status.ok()) {
      return decode_status;
    }
    return Sample{seconds_per_token * tokens, what == "tg" ? kv_bytes : 0, std::move(stages)};
  }

  std::vector<Setting> settings_;
  std::vector<std::string>& log_;
};

}  // namespace rkv::bench

#endif  // RKV_BENCH_TESTING_FAKE_RACER_H_
