#include "engine/prompt_sums.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace rkv::engine {
namespace {

std::size_t Size(std::int64_t n) { return static_cast<std::size_t>(n); }

// Tokens whose column mass one task computes: its strip of sums is as long as the rows.
constexpr std::int32_t kTileTokens = 128;

}  // namespace

PromptSums::PromptSums(const Runtime& runtime, std::span<SessionState* const> sessions)
    : runtime_(runtime) {
  for (const SessionState* session : sessions) {
    const policy::Needs& needs = session->needs;
    gram_ = gram_ || needs.query_gram;
    cosine_ = cosine_ || needs.residual_cosine;
    const bool known =
        std::ranges::any_of(masses_, [&](const Mass& mass) { return mass.band == needs.band; });
    if (needs.column_mass && !known) {
      masses_.push_back({.band = needs.band, .all = {}, .near = {}});
    }
  }
}

std::size_t PromptSums::Bytes(const Runtime& runtime, const policy::Needs& needs,
                              std::int32_t held_rows, std::int32_t tokens) {
  const model::HyperParams& params = runtime.params();
  const std::int64_t rows = std::int64_t{held_rows} + tokens;
  std::int64_t floats = needs.residual_cosine ? tokens : 0;
  if (needs.column_mass) {
    const std::int64_t strips =
        (std::min(runtime.piece_tokens, tokens) + kTileTokens - 1) / kTileTokens;
    floats += 2 * rows * params.kv_heads * (strips + 1);
  }
  if (needs.query_gram) {
    floats += std::int64_t{params.layers} * params.kv_heads * params.head_dim * params.head_dim;
  }
  return Size(floats) * sizeof(float);
}

void PromptSums::BeginLayer(std::span<const kv::HeadStore> heads, std::int32_t tokens) {
  for (Mass& mass : masses_) {
    mass.all.resize(heads.size());
    mass.near.resize(heads.size());
    for (std::size_t h = 0; h < heads.size(); ++h) {
      const std::size_t rows = Size(heads[h].rows()) + Size(tokens);
      mass.all[h].assign(rows, 0.0f);
      mass.near[h].assign(mass.band > 0 ? rows : 0, 0.0f);
    }
  }
  if (gram_) {
    const std::size_t d = Size(runtime_.params().head_dim);
    grams_.emplace_back(heads.size(), std::vector<float>(d * d, 0.0f));
  }
  layer_ += 1;
  token_cosines_.assign(cosine_ ? Size(tokens) : 0, 0.0f);
}

void PromptSums::AddQueries(const attention::PrefillTile& queries,
                            std::span<const kv::HeadStore> heads) {
  for (Mass& mass : masses_) {
    AddMass(queries, heads, mass);
  }
  if (gram_) {
    AddGram(queries);
  }
}

void PromptSums::AddMass(const attention::PrefillTile& queries,
                         std::span<const kv::HeadStore> heads, Mass& mass) {
  const std::size_t group_width = Size(queries.group) * Size(runtime_.params().head_dim);
  const std::int64_t tiles = (queries.tokens + kTileTokens - 1) / kTileTokens;
  const auto count = static_cast<std::int64_t>(heads.size());
  std::vector<std::vector<float>> all(Size(tiles * count));
  std::vector<std::vector<float>> near(all.size());
  runtime_.pool->ParallelFor(
      tiles * count, [&](std::int64_t task, const ThreadPool::Worker& worker) {
        const auto h = Size(task % count);
        const auto begin = static_cast<std::int32_t>(task / count * kTileTokens);
        attention::PrefillTile tile = queries;
        tile.q += Size(begin) * queries.q_stride + h * group_width;
        tile.tokens = std::min(kTileTokens, queries.tokens - begin);
        tile.first_row = heads[h].rows() - queries.tokens + begin;
        const std::size_t rows = Size(tile.first_row + tile.tokens);
        all[Size(task)].resize(rows);
        near[Size(task)].resize(mass.band > 0 ? rows : 0);
        runtime_.backend->column_mass(tile, heads[h].view(), mass.band, all[Size(task)].data(),
                                      mass.band > 0 ? near[Size(task)].data() : nullptr,
                                      worker.scratch);
      });
  const auto add = [](const std::vector<float>& from, std::vector<float>& into) {
    std::transform(from.begin(), from.end(), into.begin(), into.begin(), std::plus<>());
  };
  for (std::size_t task = 0; task < all.size(); ++task) {
    const std::size_t h = task % heads.size();
    add(all[task], mass.all[h]);
    add(near[task], mass.near[h]);
  }
}

void PromptSums::AddGram(const attention::PrefillTile& queries) {
  const std::size_t d = Size(runtime_.params().head_dim);
  const std::size_t group_width = Size(queries.group) * d;
  runtime_.pool->ParallelFor(static_cast<std::int64_t>(grams_.back().size()),
                             [&](std::int64_t task, const ThreadPool::Worker&) {
                               float* gram = grams_.back()[Size(task)].data();
                               for (std::int32_t t = 0; t < queries.tokens; ++t) {
                                 const float* q = queries.q + Size(t) * queries.q_stride +
                                                  Size(task) * group_width;
                                 for (std::int32_t g = 0; g < queries.group; ++g, q += d) {
                                   for (std::size_t x = 0; x < d; ++x) {
                                     for (std::size_t y = 0; y < d; ++y) {
                                       gram[x * d + y] += q[x] * q[y];
                                     }
                                   }
                                 }
                               }
                             });
}

void PromptSums::AddResidual(std::int32_t token, std::span<const float> hidden,
                             std::span<const float> delta) {
  double dot = 0;
  double before = 0;
  double after = 0;
  for (std::size_t i = 0; i < hidden.size(); ++i) {
    const double x = hidden[i];
    const double y = x + delta[i];
    dot += x * y;
    before += x * x;
    after += y * y;
  }
  const double norm = std::sqrt(before * after);
  token_cosines_[Size(token)] = static_cast<float>(norm > 0 ? dot / norm : 1.0);
}

void PromptSums::EndLayer() {
  if (cosine_) {
    const double sum = std::accumulate(token_cosines_.begin(), token_cosines_.end(), 0.0);
    cosines_.push_back(static_cast<float>(sum / static_cast<double>(token_cosines_.size())));
  }
}

void PromptSums::Show(const policy::Needs& needs, std::int32_t layer, std::size_t kv_head,
                      policy::HeadPrefill& head) const {
  for (const Mass& mass : masses_) {
    if (needs.column_mass && mass.band == needs.band && layer == layer_) {
      head.column_mass = mass.all[kv_head];
      head.near_mass = mass.near[kv_head];
    }
  }
  if (needs.query_gram) {
    head.query_gram = grams_[Size(layer)][kv_head];
  }
}

}  // namespace rkv::engine
