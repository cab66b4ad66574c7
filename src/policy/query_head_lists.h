// QueryHeadLists: the slots that each query head of a group kept, where they differ.
#ifndef RKV_POLICY_QUERY_HEAD_LISTS_H_
#define RKV_POLICY_QUERY_HEAD_LISTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "policy/head_state.h"
#include "policy/policy.h"

namespace rkv::policy {

// Follows Rows::heads of what Evict kept; slots that come later belong to every head.
class QueryHeadLists final : public HeadState {
 public:
  Status Build(const StateBuild& build) override;
  Status Append(const kv::SlotView& rows) override;
  void Truncate(const kv::SlotView& rows) override;
  Status Keep(const kv::SlotView& rows, std::span<const std::int32_t> kept) override;

  // All while every head has every slot.
  void Fill(Rows& live) const;

 private:
  std::int32_t slots_ = 0;
  std::vector<std::vector<std::int32_t>> heads_;  // [group]; empty: all slots
};

// Attention mass of the window by query head: scores becomes [group][rows before the window].
// REQUIRES: such rows exist. Cost: Backend::window_mass, once a head.
void ScoreQueryHeads(const LayerPrefill& layer, const HeadPrefill& in, std::vector<float>& scores);

}  // namespace rkv::policy

#endif  // RKV_POLICY_QUERY_HEAD_LISTS_H_
