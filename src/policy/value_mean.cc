#include "policy/value_mean.h"

#include <algorithm>

#include "kv/codec.h"
#include "policy/policy.h"

namespace rkv::policy {

ValueMean::ValueMean(std::int32_t head_dim, kv::MemoryMeter& meter)
    : meter_(meter),
      sum_(static_cast<std::size_t>(head_dim)),
      mean_(static_cast<std::size_t>(head_dim)) {
  meter_.AddIndex(Bytes(head_dim));
}

ValueMean::~ValueMean() { meter_.SubIndex(Bytes(static_cast<std::int32_t>(mean_.size()))); }

std::size_t ValueMean::Bytes(std::int32_t head_dim) {
  return static_cast<std::size_t>(head_dim) * (sizeof(double) + sizeof(float));
}

void ValueMean::Rebuild(const kv::SlotView& rows) {
  slots_ = 0;
  std::ranges::fill(sum_, 0.0);
  std::ranges::fill(mean_, 0.0f);
  Append(rows);
}

void ValueMean::Append(const kv::SlotView& rows) {
  std::vector<float> value(mean_.size());
  for (; slots_ < rows.slots; ++slots_) {
    kv::DecodeRow(rows.head.codec, rows.Value(slots_), value, kv::Part::kValue);
    std::transform(sum_.begin(), sum_.end(), value.begin(), sum_.begin(),
                   [](double sum, float v) { return sum + v; });
  }
  if (slots_ > 0) {
    std::transform(sum_.begin(), sum_.end(), mean_.begin(),
                   [&](double sum) { return static_cast<float>(sum / slots_); });
  }
}

std::unique_ptr<HeadState> NewChunks(const StateShape& shape, std::int32_t chunk_rows,
                                     bool complete) {
  const std::int32_t d = shape.turn->head_dim;
  return complete ? std::make_unique<CompletedChunks>(shape, d, chunk_rows)
                  : std::make_unique<ChunkState>(shape, d, chunk_rows);
}

std::size_t ChunksBytes(const TurnShape& shape, kv::Codec codec, std::int32_t chunk_rows,
                        bool complete, std::int64_t rows) {
  return kv::ChunkIndex::Bytes(shape.head_dim, codec, chunk_rows, rows) +
         (complete ? ValueMean::Bytes(shape.head_dim) : 0);
}

}  // namespace rkv::policy
