#include "kv/chunk_index.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/half.h"

namespace rkv::kv {
namespace {

constexpr std::size_t kLine = 64;  // bytes of a cache line

std::int64_t ChunksFor(std::int64_t rows, std::int32_t chunk_rows) {
  return (rows + chunk_rows - 1) / chunk_rows;
}

std::size_t Channels(std::int32_t head_dim, std::int32_t chunk_rows) {
  return static_cast<std::size_t>(head_dim) * (chunk_rows == 1 ? 1 : 2);
}

// Numbers between two channels: an odd number of cache lines, so that the channels spread over all
// cache sets, with at least one line of padding behind the last chunk.
std::size_t Stride(std::int64_t chunks, Codec codec) {
  if (chunks == 0) {
    return 0;
  }
  const std::size_t bytes = static_cast<std::size_t>(chunks) * CodecBytes(codec);
  const std::size_t lines = (bytes + kLine - 1) / kLine + 1;
  return (lines | 1) * kLine / CodecBytes(codec);
}

// Maps the bits of an IEEE number to a signed integer of the same order, and back. Comparing these
// equals comparing the numbers, needs no conversion, and is a total order with -0 and NaN too.
template <class Bits>
std::make_signed_t<Bits> Order(Bits bits) {
  const auto value = static_cast<std::make_signed_t<Bits>>(bits);
  constexpr auto kMagnitude = static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> 1);
  return value < 0 ? static_cast<std::make_signed_t<Bits>>(bits ^ kMagnitude) : value;
}

// Takes the key of `row` into its chunk. data: [channels][stride].
template <class Bits>
void TakeKey(const std::byte* key, const IndexView& index, std::int32_t row, std::byte* data) {
  auto* const low = reinterpret_cast<Bits*>(data) + row / index.chunk_rows;
  const bool two = index.chunk_rows > 1;  // else minimum and maximum are one copy of the key
  Bits* const high = two ? low + static_cast<std::size_t>(index.head_dim) * index.stride : nullptr;
  const bool first = row % index.chunk_rows == 0;
  for (std::int32_t channel = 0; channel < index.head_dim; ++channel) {
    Bits bits = 0;
    std::memcpy(&bits, key + static_cast<std::size_t>(channel) * sizeof bits, sizeof bits);
    const std::size_t at = static_cast<std::size_t>(channel) * index.stride;
    if (first || Order(bits) < Order(low[at])) {
      low[at] = bits;
    }
    if (two && (first || Order(bits) > Order(high[at]))) {
      high[at] = bits;
    }
  }
}

}  // namespace

ChunkIndex::ChunkIndex(std::int32_t head_dim, Codec codec, std::int32_t chunk_rows,
                       MemoryMeter& meter)
    : head_dim_(head_dim), codec_(codec), chunk_rows_(chunk_rows), meter_(&meter) {
  Check(head_dim > 0 && chunk_rows >= 1, "an index needs channels and chunk rows");
}

ChunkIndex::~ChunkIndex() { meter_->SubIndex(data_.size()); }

ChunkIndex::ChunkIndex(ChunkIndex&& other) noexcept
    : head_dim_(other.head_dim_),
      codec_(other.codec_),
      chunk_rows_(other.chunk_rows_),
      meter_(other.meter_),
      data_(std::move(other.data_)),
      stride_(std::exchange(other.stride_, 0)),
      rows_(std::exchange(other.rows_, 0)) {}

IndexView ChunkIndex::view() const {
  return {data_.data(), stride_, head_dim_, chunk_rows_, rows_, IndexCodec(codec_)};
}

std::size_t ChunkIndex::Bytes(std::int32_t head_dim, Codec codec, std::int32_t chunk_rows,
                              std::int64_t rows) {
  const Codec stored = IndexCodec(codec);
  return Channels(head_dim, chunk_rows) * Stride(ChunksFor(rows, chunk_rows), stored) *
         CodecBytes(stored);
}

Status ChunkIndex::Rebuild(const SlotView& rows, std::int32_t spare_rows) {
  Check(spare_rows >= 0, "spare rows out of range");
  meter_->SubIndex(data_.size());
  data_ = Buffer();  // first, so that old and new are never held together
  stride_ = 0;
  rows_ = 0;
  Status status = Reserve(ChunksFor(std::int64_t{rows.slots} + spare_rows, chunk_rows_));
  if (status.ok()) {
    TakeRows(rows);
  }
  return status;
}

Status ChunkIndex::Append(const SlotView& rows) {
  const std::int64_t chunks = ChunksFor(rows.slots, chunk_rows_);
  if (chunks > Room()) {
    Status status = Reserve(std::max(chunks, Room() + Room() / 2));
    if (!status.ok()) {
      return status;
    }
  }
  TakeRows(rows);
  return {};
}

void ChunkIndex::Truncate(const SlotView& rows) {
  Check(rows.slots <= rows_, "an index can only forget rows that it has");
  if (rows.slots < rows_) {
    rows_ = rows.slots / chunk_rows_ * chunk_rows_;  // the chunk that is cut is taken in anew
    TakeRows(rows);
  }
}

std::int64_t ChunkIndex::Room() const {
  const std::size_t padding = kLine / NumberBytes();
  return stride_ == 0 ? 0 : static_cast<std::int64_t>(stride_ - padding);
}

Status ChunkIndex::Reserve(std::int64_t chunks) {
  const std::size_t stride = Stride(chunks, IndexCodec(codec_));
  const std::size_t channels = Channels(head_dim_, chunk_rows_);
  Result<Buffer> data = Buffer::Allocate(channels * stride * NumberBytes());
  if (!data) {
    return data.error();
  }
  meter_->AddIndex(data->size());  // both are held during the copy
  const std::size_t used = static_cast<std::size_t>(view().chunks()) * NumberBytes();
  for (std::size_t channel = 0; channel < channels && used > 0; ++channel) {
    std::memcpy(data->data() + channel * stride * NumberBytes(),
                data_.data() + channel * stride_ * NumberBytes(), used);
  }
  meter_->SubIndex(data_.size());
  data_ = *std::move(data);
  stride_ = stride;
  return {};
}

void ChunkIndex::TakeRows(const SlotView& rows) {
  Check(rows.head.head_dim == head_dim_ && rows.head.codec == codec_ && rows.slots >= rows_,
        "an index follows the rows of one head");
  std::vector<float> key(codec_ == Codec::kQ8 ? static_cast<std::size_t>(head_dim_) : 0);
  std::vector<std::uint16_t> halves(key.size());
  for (const IndexView index = view(); rows_ < rows.slots; ++rows_) {
    switch (codec_) {
      case Codec::kF32:
        TakeKey<std::uint32_t>(rows.Key(rows_), index, rows_, data_.data());
        break;
      case Codec::kF16:
      case Codec::kBf16:
        TakeKey<std::uint16_t>(rows.Key(rows_), index, rows_, data_.data());
        break;
      case Codec::kQ8:
        DecodeRow(codec_, rows.Key(rows_), key);
        std::ranges::transform(key, halves.begin(), F32ToF16);
        TakeKey<std::uint16_t>(std::as_bytes(std::span(halves)).data(), index, rows_, data_.data());
        break;
    }
  }
}

}  // namespace rkv::kv
