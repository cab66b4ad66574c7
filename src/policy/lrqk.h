// LrqkState: the projections of one head's queries and keys, and every row's projected key.
#ifndef RKV_POLICY_LRQK_H_
#define RKV_POLICY_LRQK_H_

#include <cstdint>
#include <span>
#include <vector>

#include "attention/backend.h"
#include "policy/code_index.h"
#include "policy/head_state.h"
#include "policy/query_key_factors.h"

namespace rkv::policy {

// A prompt makes the projections from the Gram matrices of its own and earlier prompts' queries and
// of the keys that stay; decoding uses them as they are. Rows before any prompt: those of unit
// matrices. Source: policy specification 2.17 (c).
class LrqkState final : public HeadState {
 public:
  // sweeps: of alternating least squares; 0 for the closed form.
  LrqkState(const StateShape& shape, std::int32_t rank, std::int32_t sweeps);
  ~LrqkState() override;

  // Projected keys, one chunk a slot, head_dim = rank.
  kv::IndexView codes() const { return codes_.view(); }
  // out [group][rank] = scale * the projected queries.
  void Project(const attention::GroupQuery& query, float scale, std::span<float> out) const;

  // O(slots * head_dim * (head_dim + rank) + head_dim^3).
  Status Build(const StateBuild& build) override;
  Status Append(const kv::SlotView& rows) override;
  void Truncate(const kv::SlotView& rows) override { codes_.Truncate(rows.slots); }
  Status Keep(const kv::SlotView& rows, std::span<const std::int32_t> kept) override;

  static std::size_t Bytes(std::int32_t head_dim, kv::Codec codec, std::int32_t rank,
                           std::int64_t rows);

 private:
  static std::size_t FixedBytes(std::int32_t head_dim, std::int32_t rank);
  void AddQueries(const HeadPrefill& prefill);

  std::int32_t head_dim_;
  std::int32_t rank_;
  std::int32_t sweeps_;
  kv::MemoryMeter& meter_;
  std::vector<double> query_gram_;  // of all prompts, for the next one
  QueryKeyFactors factors_;
  CodeIndex codes_;
};

}  // namespace rkv::policy

#endif  // RKV_POLICY_LRQK_H_
