// HeadView and IndexView: what a kernel sees of one (layer, kv_head). Plain pointers, no ownership.
#ifndef RKV_KV_HEAD_VIEW_H_
#define RKV_KV_HEAD_VIEW_H_

#include <cstddef>
#include <cstdint>

#include "kv/codec.h"

namespace rkv::kv {

// Rows in one block: a block of a 64-wide f16 head is 16 KiB, so that the unused tail of the last
// block stays below 2 % of a 2,000-row head.
inline constexpr std::int32_t kBlockRows = 64;

// Rows [0, rows) of one (layer, kv_head), in ascending position order. Row r lies at
// blocks[r / kBlockRows] + (r % kBlockRows) * row_bytes: key [head_dim], then value [head_dim],
// each with its scales where the codec has them.
struct HeadView {
  const std::byte* const* blocks = nullptr;
  const std::int32_t* positions = nullptr;  // [rows] absolute positions, strictly ascending
  std::int32_t rows = 0;
  std::int32_t head_dim = 0;
  Codec codec = Codec::kF16;

  std::size_t row_bytes() const { return RowBytes(codec, head_dim); }
  std::size_t value_offset() const { return StoredBytes(codec, head_dim); }
  const std::byte* Key(std::int32_t row) const {
    return blocks[row / kBlockRows] + static_cast<std::size_t>(row % kBlockRows) * row_bytes();
  }
  const std::byte* Value(std::int32_t row) const { return Key(row) + value_offset(); }
};

// Rows of a head by slot: all of them, or those of an ascending list. A list is a view of the
// store: nothing is copied.
struct SlotView {
  HeadView head;
  const std::int32_t* list = nullptr;  // [slots] rows; null: a slot is a row
  std::int32_t slots = 0;

  SlotView() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a head is the view of all its rows
  SlotView(const HeadView& all) : head(all), slots(all.rows) {}
  SlotView(const HeadView& of, const std::int32_t* rows, std::int32_t count)
      : head(of), list(rows), slots(count) {}

  std::int32_t Row(std::int32_t slot) const { return list == nullptr ? slot : list[slot]; }
  const std::byte* Key(std::int32_t slot) const { return head.Key(Row(slot)); }
  const std::byte* Value(std::int32_t slot) const { return head.Value(Row(slot)); }
  std::int32_t Position(std::int32_t slot) const { return head.positions[Row(slot)]; }
};

// Minimum and maximum of the keys of each chunk, channel-major: one channel of all chunks is one
// contiguous stream. Chunk b covers rows [b * chunk_rows, min((b + 1) * chunk_rows, rows)).
// Numbers are stored in IndexCodec of the rows: exact, but of quantised rows rounded to f16.
struct IndexView {
  const std::byte* data = nullptr;
  std::size_t stride =
      0;  // numbers between two channels: chunks plus padding, never a power of two
  std::int32_t head_dim = 0;
  std::int32_t chunk_rows = 0;
  std::int32_t rows = 0;
  Codec codec = Codec::kF16;

  std::int32_t chunks() const { return chunk_rows == 0 ? 0 : (rows + chunk_rows - 1) / chunk_rows; }
  // [chunks] minima / maxima of one channel. With chunk_rows 1 both are the key itself, stored
  // once.
  const std::byte* Min(std::int32_t channel) const { return Channel(channel); }
  const std::byte* Max(std::int32_t channel) const {
    return Channel(chunk_rows == 1 ? channel : channel + head_dim);
  }

 private:
  const std::byte* Channel(std::int32_t c) const {
    return data + static_cast<std::size_t>(c) * stride * CodecBytes(codec);
  }
};

}  // namespace rkv::kv

#endif  // RKV_KV_HEAD_VIEW_H_
