#include <algorithm>
#include <numeric>
#include <utility>

#include "policy/lrqk.h"
#include "policy/policy.h"

namespace rkv::policy {
namespace {

constexpr std::int32_t kGramRows = 64;

// Sum of k k^T over all slots, [head_dim][head_dim]; in f32 over a block of rows.
std::vector<double> KeyGram(const kv::SlotView& rows) {
  const auto d = static_cast<std::size_t>(rows.head.head_dim);
  std::vector<double> gram(d * d, 0.0);
  std::vector<float> block(d * d, 0.0f);
  std::vector<float> key(d);
  for (std::int32_t slot = 0; slot < rows.slots; ++slot) {
    kv::DecodeRow(rows.head.codec, rows.Key(slot), key);
    for (std::size_t x = 0; x < d; ++x) {
      for (std::size_t y = x; y < d; ++y) {
        block[x * d + y] += key[x] * key[y];
      }
    }
    if ((slot + 1) % kGramRows == 0 || slot + 1 == rows.slots) {
      std::ranges::transform(gram, block, gram.begin(),
                             [](double sum, float part) { return sum + part; });
      std::ranges::fill(block, 0.0f);
    }
  }
  for (std::size_t x = 0; x < d; ++x) {
    for (std::size_t y = 0; y < x; ++y) {
      gram[x * d + y] = gram[y * d + x];
    }
  }
  return gram;
}

// out [rank] = scale * x [head_dim] times m [head_dim][rank].
void Multiply(std::span<const float> x, std::span<const float> m, float scale,
              std::span<float> out) {
  std::ranges::fill(out, 0.0f);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float weight = scale * x[i];
    const float* row = m.data() + i * out.size();
    for (std::size_t r = 0; r < out.size(); ++r) {
      out[r] += weight * row[r];
    }
  }
}

}  // namespace

LrqkState::LrqkState(const StateShape& shape, std::int32_t rank, std::int32_t sweeps)
    : head_dim_(shape.turn->head_dim),
      rank_(rank),
      sweeps_(sweeps),
      meter_(*shape.meter),
      query_gram_(static_cast<std::size_t>(head_dim_) * static_cast<std::size_t>(head_dim_), 0.0),
      codes_(rank, shape.codec, *shape.meter) {
  meter_.AddIndex(FixedBytes(head_dim_, rank_));
}

LrqkState::~LrqkState() { meter_.SubIndex(FixedBytes(head_dim_, rank_)); }

std::size_t LrqkState::FixedBytes(std::int32_t head_dim, std::int32_t rank) {
  return static_cast<std::size_t>(head_dim * head_dim) * sizeof(double) +
         static_cast<std::size_t>(2 * head_dim * rank) * sizeof(float);
}

std::size_t LrqkState::Bytes(std::int32_t head_dim, kv::Codec codec, std::int32_t rank,
                             std::int64_t rows) {
  return FixedBytes(head_dim, rank) + CodeIndex::Bytes(rank, codec, rows);
}

void LrqkState::Project(const attention::GroupQuery& query, float scale,
                        std::span<float> out) const {
  const auto d = static_cast<std::size_t>(head_dim_);
  const auto rank = static_cast<std::size_t>(rank_);
  for (std::size_t g = 0; g < static_cast<std::size_t>(query.group); ++g) {
    Multiply({query.q + g * d, d}, factors_.query, scale, out.subspan(g * rank, rank));
  }
}

// The Gram of this prompt's queries, on top of that of the prompts before.
void LrqkState::AddQueries(const HeadPrefill& prefill) {
  if (const auto* before = static_cast<const LrqkState*>(prefill.state)) {
    query_gram_ = before->query_gram_;
  }
  for (std::size_t i = 0; i < prefill.query_gram.size(); ++i) {
    query_gram_[i] += static_cast<double>(prefill.query_gram[i]);
  }
}

Status LrqkState::Build(const StateBuild& build) {
  if (build.prefill != nullptr) {
    AddQueries(*build.prefill);
  }
  const std::vector<double> keys = KeyGram(build.rows);
  const QueryKeyGrams grams = {query_gram_, keys, head_dim_};
  factors_ = sweeps_ == 0 ? ClosedFactors(grams, rank_) : AlternatingFactors(grams, rank_, sweeps_);
  codes_.Truncate(0);
  if (Status status = codes_.Reserve(std::int64_t{build.rows.slots} + build.spare_rows);
      !status.ok()) {
    return status;
  }
  return Append(build.rows);
}

Status LrqkState::Append(const kv::SlotView& rows) {
  if (factors_.key.empty()) {
    return Build({.rows = rows});
  }
  std::vector<float> key(static_cast<std::size_t>(head_dim_));
  std::vector<float> code(static_cast<std::size_t>(rank_));
  while (codes_.count() < rows.slots) {
    kv::DecodeRow(rows.head.codec, rows.Key(codes_.count()), key);
    Multiply(key, factors_.key, 1.0f, code);
    if (Status status = codes_.Push(code); !status.ok()) {
      return status;
    }
  }
  return {};
}

Status LrqkState::Keep(const kv::SlotView& /*rows*/, std::span<const std::int32_t> kept) {
  codes_.Keep(kept);
  return {};
}

}  // namespace rkv::policy
