// ValueMean: the running mean of the values of a head's slots, for completion (SparQ).
#ifndef RKV_POLICY_VALUE_MEAN_H_
#define RKV_POLICY_VALUE_MEAN_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "policy/head_state.h"

namespace rkv::policy {

// Sums are double and in slot order, so that appended slots give the bits of a rebuild.
class ValueMean {
 public:
  ValueMean(std::int32_t head_dim, kv::MemoryMeter& meter);
  ~ValueMean();
  ValueMean(const ValueMean&) = delete;
  ValueMean& operator=(const ValueMean&) = delete;

  // [head_dim]; zeros without slots. Stays where it is.
  const float* mean() const { return mean_.data(); }
  // Anew from all slots. O(slots * head_dim).
  void Rebuild(const kv::SlotView& rows);
  // Takes in the slots that are new since.
  void Append(const kv::SlotView& rows);

  static std::size_t Bytes(std::int32_t head_dim);

 private:
  kv::MemoryMeter& meter_;
  std::int32_t slots_ = 0;
  std::vector<double> sum_;
  std::vector<float> mean_;
};

// A chunk index and the mean value beside it.
class CompletedChunks final : public ChunkState {
 public:
  CompletedChunks(const StateShape& shape, std::int32_t head_dim, std::int32_t chunk_rows)
      : ChunkState(shape, head_dim, chunk_rows), mean_(head_dim, *shape.meter) {}

  const float* mean_value() const { return mean_.mean(); }

  Status Build(const StateBuild& build) override {
    mean_.Rebuild(build.rows);
    return ChunkState::Build(build);
  }
  Status Append(const kv::SlotView& rows) override {
    mean_.Append(rows);
    return ChunkState::Append(rows);
  }
  void Truncate(const kv::SlotView& rows) override {
    mean_.Rebuild(rows);
    ChunkState::Truncate(rows);
  }
  Status Keep(const kv::SlotView& rows, std::span<const std::int32_t> kept) override {
    mean_.Rebuild(rows);
    return ChunkState::Keep(rows, kept);
  }

 private:
  ValueMean mean_;
};

// A chunk index, with the mean value if completion wants it, and its bytes.
std::unique_ptr<HeadState> NewChunks(const StateShape& shape, std::int32_t chunk_rows,
                                     bool complete);
std::size_t ChunksBytes(const TurnShape& shape, kv::Codec codec, std::int32_t chunk_rows,
                        bool complete, std::int64_t rows);

}  // namespace rkv::policy

#endif  // RKV_POLICY_VALUE_MEAN_H_
