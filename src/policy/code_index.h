// CodeIndex: a short vector for each slot or chunk of a head, channel-major, so that
// Backend::chunk_scores reads it as it reads keys.
#ifndef RKV_POLICY_CODE_INDEX_H_
#define RKV_POLICY_CODE_INDEX_H_

#include <cstdint>
#include <span>

#include "base/buffer.h"
#include "kv/head_view.h"
#include "kv/memory_meter.h"
#include "rkv/status.h"

namespace rkv::policy {

// Numbers are stored in IndexCodec of the rows' codec. Not thread-safe.
class CodeIndex {
 public:
  // `codec`: of the rows. `meter` must outlive the index.
  CodeIndex(std::int32_t width, kv::Codec codec, kv::MemoryMeter& meter);
  ~CodeIndex();
  CodeIndex(const CodeIndex&) = delete;
  CodeIndex& operator=(const CodeIndex&) = delete;

  std::int32_t count() const { return count_; }
  // Every code as a chunk of one row.
  kv::IndexView view() const;

  // Makes room for `count` codes. Errors: kResourceExhausted; the index is then as before.
  Status Reserve(std::int64_t count);
  // Appends `code` [width]; grows by half when the room is used up. Errors: those of Reserve.
  Status Push(std::span<const float> code);
  // Forgets the codes from `count` on.
  void Truncate(std::int32_t count);
  // Only the codes `kept` (ascending) stay. O(kept * width).
  void Keep(std::span<const std::int32_t> kept);

  static std::size_t Bytes(std::int32_t width, kv::Codec codec, std::int64_t count);

 private:
  std::byte* Place(std::int32_t channel, std::int32_t code);

  std::int32_t width_;
  kv::Codec codec_;  // of the numbers
  kv::MemoryMeter& meter_;
  Buffer data_;
  std::int64_t stride_ = 0;  // codes of room
  std::int32_t count_ = 0;
};

}  // namespace rkv::policy

#endif  // RKV_POLICY_CODE_INDEX_H_
