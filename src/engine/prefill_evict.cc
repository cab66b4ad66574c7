// The part of Prefill that ends a layer: the window's mass, eviction, and what an error undoes.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/clock.h"
#include "engine/prefill.h"

namespace rkv::engine {
namespace {

std::size_t Size(std::int64_t n) { return static_cast<std::size_t>(n); }

}  // namespace

// The first session owns the layer's full rows: the others take theirs before it compacts.
Status Prefill::Evict() {
  mass_window_ = -1;
  std::size_t layer_bytes = 0;
  for (const kv::HeadStore& head : Cache(primary()).heads) {
    layer_bytes += Size(head.rows()) * head.view().row_bytes();
  }
  for (std::size_t i = sessions_.size(); i-- > 0;) {
    SessionState& session = *sessions_[i];
    if (Status status = EvictSession(session); !status.ok()) {
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

Status Prefill::EvictSession(SessionState& session) {
  LayerCache& full = Cache(primary());
  const std::int32_t window = std::min(session.needs.window, count_);
  if (window > 0 && window != mass_window_) {
    WindowMass(window);
  }
  const StageTimer timer(Stage("prefill.evict"));
  std::vector<policy::HeadPrefill> heads;
  const std::size_t mass_stride = mass_.size() / sizeof(float) / full.heads.size();
  for (std::size_t h = 0; h < full.heads.size(); ++h) {
    policy::HeadPrefill head{full.heads[h].view(), {}};
    if (window > 0 && head.view.rows > window) {
      head.mass = {mass_.as<float>() + h * mass_stride, Size(head.view.rows - window)};
    }
    heads.push_back(head);
  }
  Scratch scratch;
  policy::LayerPrefill in;
  in.shape = session.shape;
  in.layer = layer_;
  in.window = window;
  in.heads = heads;
  in.backend = runtime_.backend;
  in.scratch = &scratch;
  std::vector<policy::Rows> keep(heads.size());
  if (Status status = session.policy->Evict(in, keep); !status.ok()) {
    return status;
  }
  return KeepRows(session, keep);
}

void Prefill::WindowMass(std::int32_t window) {
  const StageTimer timer(Stage("prefill.window"));
  mass_window_ = window;
  const std::vector<kv::HeadStore>& heads = Cache(primary()).heads;
  const std::size_t mass_stride = mass_.size() / sizeof(float) / heads.size();
  const std::size_t group_width = Size(params_.group()) * Size(params_.head_dim);
  runtime_.pool->ParallelFor(params_.kv_heads, [&](std::int64_t task,
                                                   const ThreadPool::Worker& worker) {
    const auto h = Size(task);
    const kv::HeadView view = heads[h].view();
    if (view.rows <= window) {
      return;
    }
    attention::WindowQuery query;
    query.q =
        window_q_.as<float>() + Size(window_ - window) * Size(params_.q_width()) + h * group_width;
    query.q_stride = Size(params_.q_width());
    query.tokens = window;
    query.group = params_.group();
    query.scale = params_.attention_scale;
    runtime_.backend->window_mass(query, view,
                                  {mass_.as<float>() + h * mass_stride, Size(view.rows - window)},
                                  worker.scratch);
  });
}

Status Prefill::KeepRows(SessionState& session, std::span<const policy::Rows> keep) {
  LayerCache& full = Cache(primary());
  LayerCache& cache = Cache(session);
  std::vector<std::int32_t> every;
  for (std::size_t h = 0; h < keep.size(); ++h) {
    if (&session == &primary()) {
      if (!keep[h].all) {
        evicted_ = true;
        cache.heads[h].Keep(keep[h].list);
      }
    } else {
      if (keep[h].all) {
        every.resize(Size(full.heads[h].rows()));
        std::iota(every.begin(), every.end(), 0);
      }
      const std::vector<std::int32_t>& rows = keep[h].all ? every : keep[h].list;
      if (Status status = cache.heads[h].CopyFrom(full.heads[h], rows); !status.ok()) {
        return status;
      }
    }
    if (!cache.indexes.empty()) {
      // Room for the last prompt token and the answer.
      const std::int32_t spare = session.max_new_tokens + 1;
      if (Status status = cache.indexes[h].Rebuild(cache.heads[h].view(), spare); !status.ok()) {
        return status;
      }
    }
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
    for (std::size_t l = 0; l < session->layers.size() && !evicted_; ++l) {
      LayerCache& cache = session->layers[l];
      for (std::size_t h = 0; h < cache.heads.size(); ++h) {
        const std::int32_t held = held_[l * cache.heads.size() + h];
        cache.heads[h].Truncate(held);
        if (!cache.indexes.empty() && cache.indexes[h].rows() != held &&
            !cache.indexes[h].Rebuild(cache.heads[h].view(), session->max_new_tokens + 1).ok()) {
          session->lost = true;
        }
      }
    }
    session->pool.Trim();
  }
}

}  // namespace rkv::engine
