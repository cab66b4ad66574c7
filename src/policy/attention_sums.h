// AttentionSums: the attention that every slot got since it came, and which slots are still live.
#ifndef RKV_POLICY_ATTENTION_SUMS_H_
#define RKV_POLICY_ATTENTION_SUMS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "policy/head_state.h"
#include "policy/parts.h"
#include "policy/policy.h"

namespace rkv::policy {

// Sums over queries and the group's heads, one a slot. Dead slots keep their place until Keep.
struct SlotSums {
  std::vector<float> sums;         // [slots]
  std::vector<std::int32_t> live;  // ascending

  // The sums of the turn before and what the new prompt's queries add (HeadPrefill::column_mass),
  // for every row of in.view. REQUIRES: those rows are the slots of the turn before and later ones.
  static SlotSums AfterPrompt(const HeadPrefill& in);

  std::int32_t slots() const { return static_cast<std::int32_t>(sums.size()); }
  std::int32_t live_slots() const { return static_cast<std::int32_t>(live.size()); }
  // New slots are live and begin at 0.
  void Resize(std::int32_t slots);
  // Only the slots `kept` (ascending) stay.
  void Keep(std::span<const std::int32_t> kept);
  // Of the live slots, only the last `recent` and the `heavy` with the largest sums of the others
  // stay live; ties: the lower slot. O(live).
  void LeaveHeaviest(std::int32_t heavy, std::int32_t recent);
  // What a step may read, `rows` given as all: all while no slot is dead. Counts the sums' bytes.
  void Fill(Rows& rows) const;
  // What stays after a step: the live slots once that is worth it (WorthDropping), else all.
  void Drop(Rows& keep) const;
};

// The `count` of `slots` (ascending) with the largest rank[slot], ascending; ties: the lower slot;
// NaN last. O(slots).
std::vector<std::int32_t> BestSlots(std::vector<std::int32_t> slots, std::int32_t count,
                                    std::span<const float> rank);

// Follows the slots. A rewind drops slots but neither subtracts what later tokens added nor revives
// what they killed.
class AttentionSums : public HeadState {
 public:
  explicit AttentionSums(const StateShape& shape) : meter_(shape.meter) {}
  ~AttentionSums() override { meter_->SubIndex(bytes_); }
  AttentionSums(const AttentionSums&) = delete;
  AttentionSums& operator=(const AttentionSums&) = delete;

  // Bytes for so many rows, at most: what grows token by token grows by doubling.
  static std::size_t Bytes(std::int64_t rows);

  SlotSums& slots() { return slots_; }
  const SlotSums& slots() const { return slots_; }

  Status Build(const StateBuild& build) override;
  Status Append(const kv::SlotView& rows) override;
  void Truncate(const kv::SlotView& rows) override;
  Status Keep(const kv::SlotView& rows, std::span<const std::int32_t> kept) override;

 private:
  Status Meter();

  SlotSums slots_;
  kv::MemoryMeter* meter_;
  std::size_t bytes_ = 0;
};

// What evictors that go by these sums have in common: their state is an AttentionSums, and a step
// reads its live slots.
class SummingEvictor : public Evictor {
 public:
  // A token reads its own row beside those that the one before left.
  std::int64_t RowsAfter(const TurnShape& shape, std::int64_t kept,
                         std::int64_t more) const override {
    return more == 0 ? kept : RowsKept(shape, kept + more - 1) + 1;
  }
  double StateCost(const TurnShape& shape, std::int32_t slots) const override {
    return static_cast<double>(slots) / shape.head_dim;
  }
  std::unique_ptr<HeadState> NewState(const StateShape& shape) const override {
    return std::make_unique<AttentionSums>(shape);
  }
  std::size_t StateBytes(const TurnShape& /*shape*/, std::int64_t rows) const override {
    return AttentionSums::Bytes(rows);
  }
  void Live(const HeadDecode& in, Rows& live) const override {
    static_cast<const AttentionSums&>(*in.state).slots().Fill(live);
  }
};

// sums[slot] += attention that the slots of `read` got at this step, over the group; [slots].
// `log_sum` as in Policy::Observe. Cost: Backend::score_rows, the keys of what was read once more.
void AddStepMass(const HeadDecode& in, const Rows& read, std::span<const float> log_sum,
                 std::span<float> sums);

}  // namespace rkv::policy

#endif  // RKV_POLICY_ATTENTION_SUMS_H_
