// HeadStore: the rows of one (layer, kv_head).
#ifndef RKV_KV_HEAD_STORE_H_
#define RKV_KV_HEAD_STORE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kv/block_pool.h"
#include "kv/head_view.h"
#include "kv/memory_meter.h"
#include "rkv/status.h"

namespace rkv::kv {

// Key/value rows with absolute positions, ascending. Decides nothing. Not thread-safe, except that
// WriteRow may run on several threads for different rows.
// `pool` and `meter` must outlive the store; the pool's blocks hold kBlockRows rows.
class HeadStore {
 public:
  HeadStore(std::int32_t head_dim, Codec codec, BlockPool& pool, MemoryMeter& meter);
  ~HeadStore();
  HeadStore(HeadStore&& other) noexcept;
  HeadStore& operator=(HeadStore&&) = delete;
  HeadStore(const HeadStore&) = delete;
  HeadStore& operator=(const HeadStore&) = delete;

  // Bytes of one block of such rows.
  static std::size_t BlockBytes(std::int32_t head_dim, Codec codec);

  std::int32_t rows() const { return static_cast<std::int32_t>(positions_.size()); }
  HeadView view() const;

  // Adds `count` rows with positions first_position, first_position + 1, …; fill them by WriteRow
  // before anything reads them. Returns the first new row.
  // Errors: kResourceExhausted; the store is then as before.
  // REQUIRES: first_position above the last stored position.
  Result<std::int32_t> Extend(std::int32_t count, std::int32_t first_position);
  // key, value: [head_dim] f32. Plain conversion; the engine's hot path writes through the backend.
  void WriteRow(std::int32_t row, std::span<const float> key, std::span<const float> value);
  // Where row `row` is stored: key then value.
  std::byte* MutableRow(std::int32_t row);

  // Keeps exactly `rows` (ascending, unique) in place, frees the blocks behind them.
  // O(kept rows) copies, none for a leading run. Source index >= target index, so in place is safe.
  void Keep(std::span<const std::int32_t> rows);
  // Replaces the content by a copy of `rows` of `from`, which has the same head_dim and codec.
  // Errors: kResourceExhausted; the store is then empty.
  Status CopyFrom(const HeadStore& from, std::span<const std::int32_t> rows);
  // Drops every row from `rows` on. Cost: the blocks dropped, unless more than half of the rows go.
  // REQUIRES: 0 <= rows <= rows().
  void Truncate(std::int32_t rows);

  // Checks blocks against rows and that positions ascend; aborts on a broken invariant (tests).
  void CheckInvariants() const;

 private:
  // Allocates up to, or frees down to, `blocks` blocks; the meter follows. A failed AddBlocks
  // changes nothing.
  Status AddBlocks(std::size_t blocks);
  void DropBlocks(std::size_t blocks);

  std::int32_t head_dim_;
  Codec codec_;
  BlockPool* pool_;
  MemoryMeter* meter_;
  std::vector<std::byte*> blocks_;
  std::vector<std::int32_t> positions_;
};

}  // namespace rkv::kv

#endif  // RKV_KV_HEAD_STORE_H_
