// EngineRacer: our engine, one setting a method.
#ifndef RKV_BENCH_ENGINE_RACER_H_
#define RKV_BENCH_ENGINE_RACER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/racer.h"
#include "bench/token_feed.h"
#include "rkv/engine.h"

namespace rkv::bench {

struct EngineRacerOptions {
  std::vector<std::string> methods;
  bool random_rows = false;  // fill by Engine::FillRandom instead of a prompt
  std::uint64_t seed = 0;    // of the random rows
};

// All methods are filled from one prefill. Engine and feed must outlive it.
class EngineRacer : public Racer {
 public:
  // REQUIRES: methods that CheckPolicy accepts, at least one.
  EngineRacer(Engine& engine, const TokenFeed& feed, EngineRacerOptions options, StopCheck stop);

  std::span<const Setting> settings() const override { return settings_; }
  Status Fill(const Start& start) override;
  Result<Sample> TimePrompt(std::size_t setting, std::int32_t tokens) override;
  Result<Sample> TimeDecode(std::size_t setting, std::int32_t tokens) override;

 private:
  Status NewSessions(const Start& start);
  bool StandsAt(const Start& start) const;

  Engine& engine_;
  const TokenFeed& feed_;
  EngineRacerOptions options_;
  StopCheck stop_;
  std::vector<Setting> settings_;
  std::vector<std::unique_ptr<Session>> sessions_;  // one a setting; null: needs Fill
  std::optional<Start> start_;                      // of the sessions
};

}  // namespace rkv::bench

#endif  // RKV_BENCH_ENGINE_RACER_H_
