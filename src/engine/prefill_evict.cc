// The part of Prefill that ends a layer: scores, eviction, and what an error undoes.
#include <algorithm>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "engine/head_scores.h"
#include "engine/low_rank_keys.h"
#include "engine/prefill.h"

namespace rkv::engine {
namespace {

std::size_t Size(std::int64_t n) { return static_cast<std::size_t>(n); }

std::size_t RowBytes(const LayerCache& cache) {
  std::size_t bytes = 0;
  for (const kv::HeadStore& head : cache.heads) {
    bytes += Size(head.rows()) * head.view().row_bytes();
  }
  return bytes;
}

}  // namespace

// What the policy sees of each head of `full`; the window's queries and sums belong to the layer
// that runs.
std::vector<policy::HeadPrefill> Prefill::HeadsOf(const SessionState& session, LayerCache& full,
                                                  std::int32_t layer) const {
  const std::int32_t window = std::min(session.needs.window, count_);
  const std::size_t width = Size(params_.q_width());
  const LayerCache& own = session.layers[Size(layer)];
  std::vector<policy::HeadPrefill> heads(full.heads.size());
  for (std::size_t h = 0; h < heads.size(); ++h) {
    policy::HeadPrefill& head = heads[h];
    head.kv_head = static_cast<std::int32_t>(h);
    head.view = full.heads[h].view();
    head.window.q = layer == layer_ && window > 0
                        ? window_q_.as<float>() + Size(window_ - window) * width +
                              h * Size(params_.group()) * Size(params_.head_dim)
                        : nullptr;
    head.window.q_stride = width;
    head.window.tokens = window;
    head.window.group = params_.group();
    head.window.scale = params_.attention_scale;
    head.state = own.states[h].get();
    sums_.Show(session.needs, layer, h, head);
  }
  return heads;
}

policy::LayerPrefill Prefill::LayerOf(const SessionState& session, std::size_t index,
                                      std::int32_t layer,
                                      std::span<const policy::HeadPrefill> heads) const {
  policy::LayerPrefill in;
  in.shape = session.shape;
  in.layer = layer;
  in.turn_tokens = count_;
  in.heads = heads;
  in.earlier = kept_[index];
  in.residual_cosine = sums_.residual_cosine();
  in.all_scores = deferred_[index];
  in.classes = session.classes;
  in.backend = runtime_.backend;
  return in;
}

// The first session owns the layer's full rows: the others take theirs before it compacts.
Status Prefill::EndLayer() {
  const std::size_t layer_bytes = RowBytes(Cache(primary()));
  for (std::size_t i = sessions_.size(); i-- > 0;) {
    SessionState& session = *sessions_[i];
    std::vector<std::vector<float>> scores = ScoreLayer(i);
    Status status;
    if (session.needs.all_layers) {
      deferred_[i].push_back(std::move(scores));
      status = i > 0 ? CopyLayer(session) : Status();
    } else {
      status = EvictLayer(i, layer_, Cache(primary()), scores);
    }
    if (!status.ok()) {
      return status;
    }
    session.layer_bytes = std::max(session.layer_bytes, layer_bytes);
    if (i > 0) {
      session.shared_peak_bytes =
          std::max(session.shared_peak_bytes, session.meter.bytes() + layer_bytes);
    }
  }
  return {};
}

// Evicts where the policy wanted to see every layer first.
Status Prefill::EvictDeferred() {
  for (std::size_t i = 0; i < sessions_.size(); ++i) {
    for (std::size_t layer = 0; layer < deferred_[i].size(); ++layer) {
      const auto l = static_cast<std::int32_t>(layer);
      LayerCache& cache = sessions_[i]->layers[layer];
      if (Status status = EvictLayer(i, l, cache, deferred_[i][layer]); !status.ok()) {
        return status;
      }
    }
  }
  return {};
}

std::vector<std::vector<float>> Prefill::ScoreLayer(std::size_t index) {
  const StageTimer timer(Stage("prefill.window"));
  SessionState& session = *sessions_[index];
  const std::vector<policy::HeadPrefill> heads = HeadsOf(session, Cache(primary()), layer_);
  return ScoreHeads(*session.policy, LayerOf(session, index, layer_, heads), *runtime_.pool);
}

Status Prefill::CopyLayer(SessionState& session) {
  std::vector<policy::Rows> all(Cache(primary()).heads.size());
  return PlaceRows(session, layer_, Cache(primary()), all);
}

Status Prefill::EvictLayer(std::size_t index, std::int32_t layer, LayerCache& full,
                           std::span<const std::vector<float>> scores) {
  const StageTimer timer(Stage("prefill.evict"));
  SessionState& session = *sessions_[index];
  std::vector<policy::HeadPrefill> heads = HeadsOf(session, full, layer);
  for (std::size_t h = 0; h < heads.size(); ++h) {
    heads[h].scores = scores[h];
  }
  Scratch scratch;
  policy::LayerPrefill in = LayerOf(session, index, layer, heads);
  in.scratch = &scratch;
  std::vector<policy::Rows> keep(heads.size());
  Status status = session.policy->Evict(in, keep);
  if (status.ok()) {
    status = BuildStates(session, layer, full, heads, keep);
  }
  kept_[index].push_back(std::move(keep));
  return status;
}

// Moves the kept rows of `full` into the session, which may be their owner.
Status Prefill::PlaceRows(SessionState& session, std::int32_t layer, LayerCache& full,
                          std::span<const policy::Rows> keep) {
  LayerCache& cache = session.layers[Size(layer)];
  std::vector<std::int32_t> every;
  for (std::size_t h = 0; h < keep.size(); ++h) {
    const bool all = keep[h].all || session.needs.park;
    if (&cache == &full) {
      if (!all) {
        evicted_ = true;
        cache.heads[h].Keep(keep[h].list);
      }
      continue;
    }
    if (all) {
      every.resize(Size(full.heads[h].rows()));
      std::iota(every.begin(), every.end(), 0);
    }
    const std::vector<std::int32_t>& rows = all ? every : keep[h].list;
    if (Status status = cache.heads[h].CopyFrom(full.heads[h], rows); !status.ok()) {
      return status;
    }
  }
  return {};
}

// New states over what stays. Those of the turn before wait until the prompt has succeeded.
Status Prefill::BuildStates(SessionState& session, std::int32_t layer, LayerCache& full,
                            std::span<const policy::HeadPrefill> heads,
                            std::span<const policy::Rows> keep) {
  LayerCache& cache = session.layers[Size(layer)];
  if (Status status = PlaceRows(session, layer, full, keep); !status.ok()) {
    return status;
  }
  for (std::size_t h = 0; h < keep.size(); ++h) {
    before_.push_back({&session, layer, h, std::move(cache.states[h]), std::move(cache.hot[h])});
    if (session.needs.park && !keep[h].all) {
      cache.hot[h].Set(keep[h].list);
    }
    cache.states[h] = session.NewState(layer, static_cast<std::int32_t>(h));
    if (cache.states[h] == nullptr) {
      continue;
    }
    // Room for the last prompt token and the answer.
    Status status = cache.states[h]->Build({.rows = cache.Slots(h),
                                            .prefill = &heads[h],
                                            .keep = &keep[h],
                                            .spare_rows = session.max_new_tokens + 1});
    if (!status.ok()) {
      return status;
    }
  }
  if (session.needs.key_rank > 0) {
    evicted_ = true;  // the keys are no longer those that were computed
    ReduceKeys(runtime_, session, layer);
  }
  return {};
}

void Prefill::RollBack() {
  for (SessionState* session : sessions_) {
    if (session->empty()) {
      session->Clear();
      continue;
    }
    session->lost = evicted_;
    session->tokens.resize(Size(session->position));
    session->classes.resize(std::min(session->classes.size(), session->tokens.size()));
    for (std::size_t l = 0; l < session->layers.size() && !evicted_; ++l) {
      LayerCache& cache = session->layers[l];
      for (std::size_t h = 0; h < cache.heads.size(); ++h) {
        cache.heads[h].Truncate(held_[l * cache.heads.size() + h]);
      }
    }
    session->pool.Trim();
  }
  for (Before& before : before_) {
    if (!before.session->empty()) {
      LayerCache& cache = before.session->layers[Size(before.layer)];
      cache.states[before.head] = std::move(before.state);
      cache.hot[before.head].Take(std::move(before.hot));
    }
  }
}

}  // namespace rkv::engine
