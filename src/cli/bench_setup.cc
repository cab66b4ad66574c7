#include "cli/bench_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "bench/engine_racer.h"
#include "bench/weight_bytes.h"
#include "cli/answer.h"
#include "cli/signals.h"

namespace rkv::cli {
namespace {

Status Usage(std::string message) { return Status(Code::kInvalidArgument, std::move(message)); }

const bench::PeerKind* FindPeer(const EngineApi& api, const std::string& name) {
  const auto found = std::ranges::find_if(
      api.peers, [&](const bench::PeerKind& kind) { return kind.name == name; });
  return found == api.peers.end() ? nullptr : &*found;
}

// The settings of --peer-settings that are this peer's.
std::vector<std::string> SettingsFor(const bench::PeerKind& kind, const BenchOptions& options) {
  std::vector<std::string> settings;
  for (const std::string& name : options.peer_settings) {
    if (std::ranges::find(kind.settings, name) != kind.settings.end()) {
      settings.push_back(name);
    }
  }
  return settings;
}

Status CheckPeers(const BenchOptions& options, const EngineApi& api) {
  std::vector<std::string> settings;
  for (const std::string& name : options.peers) {
    const bench::PeerKind* const kind = FindPeer(api, name);
    if (kind == nullptr) {
      std::vector<std::string> names;
      for (const bench::PeerKind& known : api.peers) {
        names.push_back(known.name);
      }
      return Usage(fmt::format("--peer: '{}' is not {}", name, fmt::join(names, " or ")));
    }
    settings.insert(settings.end(), kind->settings.begin(), kind->settings.end());
    if (!options.peer_settings.empty() && SettingsFor(*kind, options).empty()) {
      return Usage(fmt::format("--peer-settings: '{}' has none of {}'s: {}",
                               fmt::join(options.peer_settings, ","), name,
                               fmt::join(kind->settings, ", ")));
    }
  }
  for (const std::string& name : options.peer_settings) {
    if (std::ranges::find(settings, name) == settings.end()) {
      return Usage(
          fmt::format("--peer-settings: '{}' is none of {}", name, fmt::join(settings, ", ")));
    }
  }
  return {};
}

Result<std::unique_ptr<Engine>> OpenOurs(const Options& options, const ContestPlan& plan,
                                         const EngineApi& api, Console& console) {
  Options ours = options;
  ours.engine.threads = plan.threads;
  ours.engine.context = bench::ContextFor(plan.cells);
  Result<std::unique_ptr<Engine>> engine = options.bench.shape.empty()
                                               ? OpenEngine(ours, api, console)
                                               : api.open_shape(options.bench.shape, ours.engine);
  if (!engine && engine.error().code() == Code::kInvalidArgument) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} (-d, -p and -n need a context of {} tokens)",
                              engine.error().message(), ours.engine.context));
  }
  return engine;
}

Result<bench::TokenFeed> MakeFeed(const Engine& engine, const Options& options,
                                  const ContestPlan& plan) {
  std::int32_t decode = 0;
  for (const bench::Cell& cell : plan.cells) {
    decode = std::max(decode, cell.tokens);
  }
  const std::int32_t prompt = bench::ContextFor(plan.cells);
  if (plan.text.empty()) {
    return bench::TokenFeed::Random(engine.model().vocab, prompt, decode, options.bench.seed);
  }
  const Result<std::vector<Token>> tokens = engine.Tokenize(plan.text, false, false);
  if (!tokens) {
    return tokens.error();
  }
  if (tokens->empty()) {
    return Usage(fmt::format("{}: the text has no tokens", options.file));
  }
  return bench::TokenFeed::Text(*tokens, prompt, decode, options.bench.seed);
}

Status AddPeer(const bench::PeerKind& kind, const Options& options, const ContestPlan& plan,
               const EngineApi& api, Contest& contest) {
  const ModelInfo& model = contest.engine->model();
  const BenchOptions& b = options.bench;
  bench::PeerOptions peer = {
      .model_path = model.path,
      .threads = contest.engine->options().threads,
      .context = bench::ContextFor(plan.cells),
      .settings = SettingsFor(kind, b),
      .weight_bytes = contest.weight_bytes,
      .kv_numbers_per_token = 2.0 * model.layers * model.kv_heads * model.head_dim,
      .command = {}};
  if (kind.child) {
    peer.command = {b.peer_python, b.peer_script.empty()
                                       ? (api.source_dir / "bench/openvino_peer.py").string()
                                       : b.peer_script};
    peer.weight_bytes = b.peer_model.empty() ? peer.weight_bytes : 0;
    peer.model_path = b.peer_model.empty() ? peer.model_path : b.peer_model;
  }
  Result<std::unique_ptr<bench::Racer>> racer = kind.open(peer, *contest.feed, Interrupted);
  if (!racer) {
    return Status(racer.error().code(),
                  fmt::format("--peer {}: {}", kind.name, racer.error().message()));
  }
  contest.racers.push_back(*std::move(racer));
  return {};
}

}  // namespace

Status CheckBench(const BenchOptions& options, const EngineApi& api) {
  for (const std::string& method : options.methods) {
    const Status status = api.check_policy(method);
    if (!status.ok()) {
      return Status(status.code(), "--kv: " + status.message());
    }
  }
  if (!options.shape.empty() &&
      std::ranges::find(api.known_shapes, options.shape) == api.known_shapes.end()) {
    return Usage(fmt::format("--shape: '{}' is none of {}", options.shape,
                             fmt::join(api.known_shapes, ", ")));
  }
  return CheckPeers(options, api);
}

Result<std::unique_ptr<Contest>> OpenContest(const Options& options, const ContestPlan& plan,
                                             const EngineApi& api, Console& console) {
  auto contest = std::make_unique<Contest>();
  Result<std::unique_ptr<Engine>> engine = OpenOurs(options, plan, api, console);
  if (!engine) {
    return engine.error();
  }
  contest->engine = *std::move(engine);
  contest->weight_bytes = bench::WeightBytesPerToken(contest->engine->model());
  Result<bench::TokenFeed> feed = MakeFeed(*contest->engine, options, plan);
  if (!feed) {
    return feed.error();
  }
  contest->feed = *std::move(feed);
  contest->racers.push_back(std::make_unique<bench::EngineRacer>(
      *contest->engine, *contest->feed,
      bench::EngineRacerOptions{options.bench.methods, options.bench.random_fill,
                                options.bench.seed},
      Interrupted));
  for (const std::string& name : options.bench.peers) {
    const Status status = AddPeer(*FindPeer(api, name), options, plan, api, *contest);
    if (!status.ok()) {
      return status;
    }
  }
  return contest;
}

}  // namespace rkv::cli
