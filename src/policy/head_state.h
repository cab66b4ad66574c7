// HeadState: what a method keeps beside the rows of one (layer, kv_head).
#ifndef RKV_POLICY_HEAD_STATE_H_
#define RKV_POLICY_HEAD_STATE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "kv/chunk_index.h"
#include "kv/head_view.h"
#include "kv/memory_meter.h"
#include "rkv/status.h"

namespace rkv::policy {

struct HeadPrefill;
struct Rows;
struct TurnShape;

// What a state is made for.
struct StateShape {
  const TurnShape* turn = nullptr;  // planned; not to be kept
  std::int32_t layer = 0;
  std::int32_t kv_head = 0;
  kv::Codec codec = kv::Codec::kF16;
  kv::MemoryMeter* meter = nullptr;  // thread-safe
};

// What a prompt leaves behind.
struct StateBuild {
  kv::SlotView rows;                     // the rows that stay, or the view of them
  const HeadPrefill* prefill = nullptr;  // what Evict saw; null where no prompt is at hand
  const Rows* keep = nullptr;            // what Evict answered
  std::int32_t spare_rows = 0;           // rows that will come
};

// An index, sums, a projection. It follows the slots that the method works on: built after a
// prompt, then told of every change. A state that no prompt has built starts with no slot.
// Not thread-safe; states of different heads are independent.
class HeadState {
 public:
  virtual ~HeadState() = default;
  // After a prompt. Errors: kResourceExhausted.
  virtual Status Build(const StateBuild& build) = 0;
  // Slots that are new since. Errors: kResourceExhausted.
  virtual Status Append(const kv::SlotView& rows) = 0;
  // Slots from rows.slots on are gone. Sums of attention that decoding added are not undone.
  virtual void Truncate(const kv::SlotView& rows) = 0;
  // Only the slots `kept` (ascending) of those before stay: they are `rows` now.
  // Errors: kResourceExhausted.
  virtual Status Keep(const kv::SlotView& rows, std::span<const std::int32_t> kept) = 0;
};

// A chunk index that follows the slots: HSA, Quest, SparQ (chunks of one row: the keys themselves).
class ChunkState : public HeadState {
 public:
  ChunkState(const StateShape& shape, std::int32_t head_dim, std::int32_t chunk_rows)
      : index_(head_dim, shape.codec, chunk_rows, *shape.meter) {}

  kv::IndexView view() const { return index_.view(); }

  Status Build(const StateBuild& build) override {
    return index_.Rebuild(build.rows, build.spare_rows);
  }
  Status Append(const kv::SlotView& rows) override { return index_.Append(rows); }
  void Truncate(const kv::SlotView& rows) override { index_.Truncate(rows); }
  Status Keep(const kv::SlotView& rows, std::span<const std::int32_t> /*kept*/) override {
    return index_.Rebuild(rows, kSpareRows);
  }

 private:
  static constexpr std::int32_t kSpareRows = 256;
  kv::ChunkIndex index_;
};

}  // namespace rkv::policy

#endif  // RKV_POLICY_HEAD_STATE_H_
