// HotRows: the rows of one (layer, kv_head) that a turn works on while the others are parked.
#ifndef RKV_KV_HOT_ROWS_H_
#define RKV_KV_HOT_ROWS_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kv/head_view.h"
#include "kv/memory_meter.h"

namespace rkv::kv {

// A view of a HeadStore: all its rows, or an ascending list of them to which later rows are added.
// Slot i is the i-th of them. Not thread-safe. `meter` must outlive it.
class HotRows {
 public:
  explicit HotRows(MemoryMeter& meter) : meter_(&meter) {}
  ~HotRows() { meter_->SubIndex(bytes_); }
  HotRows(HotRows&& other) noexcept
      : meter_(other.meter_),
        all_(std::exchange(other.all_, true)),
        list_(std::exchange(other.list_, {})),
        bytes_(std::exchange(other.bytes_, 0)) {}
  HotRows& operator=(HotRows&&) = delete;
  HotRows(const HotRows&) = delete;
  HotRows& operator=(const HotRows&) = delete;

  // Becomes `other`, which is left with all rows.
  void Take(HotRows&& other) {
    all_ = std::exchange(other.all_, true);
    list_ = std::exchange(other.list_, {});
    other.Meter();
    Meter();
  }

  bool all() const { return all_; }
  std::span<const std::int32_t> list() const { return list_; }
  SlotView Of(const HeadView& head) const {
    return all_ ? SlotView(head)
                : SlotView(head, list_.data(), static_cast<std::int32_t>(list_.size()));
  }

  // From now on these rows (ascending) and those that are added.
  void Set(std::vector<std::int32_t> rows) {
    all_ = false;
    list_ = std::move(rows);
    Meter();
  }
  void SetAll() {
    all_ = true;
    list_ = {};
    Meter();
  }
  // A row behind all others. O(1) amortised.
  void Add(std::int32_t row) {
    if (!all_) {
      list_.push_back(row);
      Meter();
    }
  }
  // Rows from `rows` on are gone.
  void Truncate(std::int32_t rows);
  // Only the slots `kept` (ascending) stay. REQUIRES: !all(), or the store keeps them itself.
  void Keep(std::span<const std::int32_t> kept);

 private:
  void Meter() {
    const std::size_t bytes = list_.capacity() * sizeof(std::int32_t);
    meter_->SubIndex(bytes_);
    meter_->AddIndex(bytes);
    bytes_ = bytes;
  }

  MemoryMeter* meter_;
  bool all_ = true;
  std::vector<std::int32_t> list_;
  std::size_t bytes_ = 0;
};

}  // namespace rkv::kv

#endif  // RKV_KV_HOT_ROWS_H_
