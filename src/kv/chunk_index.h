// ChunkIndex: minimum and maximum key of each chunk of one (layer, kv_head), for HSA and Quest.
#ifndef RKV_KV_CHUNK_INDEX_H_
#define RKV_KV_CHUNK_INDEX_H_

#include <cstdint>

#include "base/buffer.h"
#include "kv/head_view.h"
#include "kv/memory_meter.h"
#include "rkv/status.h"

namespace rkv::kv {

// Numbers are stored in IndexCodec of the rows' codec.
// Kept equal to what a rebuild from the rows would give (policy specification, property U7), bit by
// bit: -0 counts as less than 0, a NaN as beyond the infinity of its sign.
// Not thread-safe. `meter` must outlive the index.
// Source: RocketKV, arXiv:2502.14051, section 3.3 (HSA step 0).
class ChunkIndex {
 public:
  // `codec`: of the rows. REQUIRES: chunk_rows >= 1.
  ChunkIndex(std::int32_t head_dim, Codec codec, std::int32_t chunk_rows, MemoryMeter& meter);
  ~ChunkIndex();
  ChunkIndex(ChunkIndex&& other) noexcept;
  ChunkIndex& operator=(ChunkIndex&&) = delete;
  ChunkIndex(const ChunkIndex&) = delete;
  ChunkIndex& operator=(const ChunkIndex&) = delete;

  IndexView view() const;
  std::int32_t rows() const { return rows_; }
  std::int32_t chunk_rows() const { return chunk_rows_; }

  // A row of the index is a slot of `rows`: of a list of rows it covers those alone.

  // Makes the index cover `rows` from scratch, with room for `spare_rows` more.
  // Errors: kResourceExhausted; the index is then empty. O(rows * head_dim).
  Status Rebuild(const SlotView& rows, std::int32_t spare_rows);
  // Takes in slots [rows(), rows.slots). Grows by half when the room is used up.
  // Errors: kResourceExhausted; the index is then as before. O(new rows * head_dim) amortised.
  Status Append(const SlotView& rows);
  // Forgets the slots from rows.slots on; `rows` still holds those before. Memory stays allocated.
  // O(chunk_rows * head_dim). REQUIRES: rows.slots <= rows().
  void Truncate(const SlotView& rows);

  // Bytes of an index over `rows` rows, as Rebuild(…, spare_rows) allocates them.
  static std::size_t Bytes(std::int32_t head_dim, Codec codec, std::int32_t chunk_rows,
                           std::int64_t rows);

 private:
  std::size_t NumberBytes() const { return CodecBytes(IndexCodec(codec_)); }
  // Chunks that fit into `data_`.
  std::int64_t Room() const;
  // Moves the index into a buffer for `chunks` chunks.
  Status Reserve(std::int64_t chunks);
  void TakeRows(const SlotView& rows);

  std::int32_t head_dim_;
  Codec codec_;
  std::int32_t chunk_rows_;
  MemoryMeter* meter_;
  Buffer data_;
  std::size_t stride_ = 0;  // chunks of room, with padding
  std::int32_t rows_ = 0;
};

}  // namespace rkv::kv

#endif  // RKV_KV_CHUNK_INDEX_H_
