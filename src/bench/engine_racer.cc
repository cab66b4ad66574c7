#include "bench/engine_racer.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "bench/weight_bytes.h"

namespace rkv::bench {
namespace {

// Stage times between two moments of a session.
std::map<std::string, double> Elapsed(const SessionStats& before, const SessionStats& after) {
  std::map<std::string, double> stages = after.stage_seconds;
  for (const auto& [stage, seconds] : before.stage_seconds) {
    stages[stage] -= seconds;
  }
  std::erase_if(stages, [](const auto& stage) { return stage.second <= 0; });
  return stages;
}

Status Stopped() { return {Code::kCancelled, "interrupted"}; }

}  // namespace

EngineRacer::EngineRacer(Engine& engine, const TokenFeed& feed, EngineRacerOptions options,
                         StopCheck stop)
    : engine_(engine), feed_(feed), options_(std::move(options)), stop_(std::move(stop)) {
  const std::uint64_t weight_bytes = WeightBytesPerToken(engine.model());
  for (const std::string& method : options_.methods) {
    settings_.push_back({.engine = "rkv",
                         .name = {},
                         .kv = method,
                         .peer = false,
                         .is_default = false,
                         .weight_bytes = weight_bytes});
  }
}

bool EngineRacer::StandsAt(const Start& start) const {
  return start_ == start &&
         std::ranges::all_of(sessions_, [](const auto& session) { return session != nullptr; });
}

Status EngineRacer::NewSessions(const Start& start) {
  sessions_.clear();
  start_ = start;
  for (const std::string& method : options_.methods) {
    Result<std::unique_ptr<Session>> session =
        engine_.NewSession({.policy = method, .max_new_tokens = start.new_tokens});
    if (!session) {
      return session.error();
    }
    sessions_.push_back(*std::move(session));
  }
  return {};
}

Status EngineRacer::Fill(const Start& start) {
  if (StandsAt(start)) {
    return {};
  }
  Status status = NewSessions(start);
  if (!status.ok() || start.depth == 0) {
    return status;
  }
  std::vector<Session*> sessions;
  for (const auto& session : sessions_) {
    sessions.push_back(session.get());
  }
  if (options_.random_rows) {
    return engine_.FillRandom(sessions, start.depth, options_.seed);
  }
  return engine_.Prefill(sessions, feed_.prompt(0, start.depth),
                         [this](const PrefillProgress&) { return !stop_(); });
}

Result<Sample> EngineRacer::TimePrompt(std::size_t setting, std::int32_t tokens) {
  const std::unique_ptr<Session> session = std::move(sessions_[setting]);
  const SessionStats before = session->stats();
  Session* const one = session.get();
  const double start = NowSeconds();
  const Status status = engine_.Prefill({&one, 1}, feed_.prompt(session->position(), tokens),
                                        [this](const PrefillProgress&) { return !stop_(); });
  const double seconds = NowSeconds() - start;
  if (!status.ok()) {
    return status;
  }
  return Sample{seconds, 0, Elapsed(before, session->stats())};
}

Result<Sample> EngineRacer::TimeDecode(std::size_t setting, std::int32_t tokens) {
  Session& session = *sessions_[setting];
  const std::int32_t depth = session.position();
  const SessionStats before = session.stats();
  const double start = NowSeconds();
  for (std::int32_t step = 0; step < tokens; ++step) {
    const Result<std::span<const float>> logits = session.Decode(feed_.decoded(step));
    if (!logits) {
      return logits.error();
    }
    if (stop_()) {
      return Stopped();
    }
  }
  const double seconds = NowSeconds() - start;
  const SessionStats after = session.stats();
  const Status status = session.Rewind(depth);
  if (!status.ok()) {
    return status;
  }
  return Sample{seconds, after.kv_bytes_read_per_step, Elapsed(before, after)};
}

}  // namespace rkv::bench
