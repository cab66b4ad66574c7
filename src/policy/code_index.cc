#include "policy/code_index.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/check.h"

namespace rkv::policy {
namespace {

// Codes between two channels for `count` codes: never a power of two.
std::int64_t Stride(std::int64_t count) { return (count + 31) / 32 * 32 + 32; }

}  // namespace

CodeIndex::CodeIndex(std::int32_t width, kv::Codec codec, kv::MemoryMeter& meter)
    : width_(width), codec_(kv::IndexCodec(codec)), meter_(meter) {}

CodeIndex::~CodeIndex() { meter_.SubIndex(data_.size()); }

kv::IndexView CodeIndex::view() const {
  return {data_.data(), static_cast<std::size_t>(stride_), width_, 1, count_, codec_};
}

std::size_t CodeIndex::Bytes(std::int32_t width, kv::Codec codec, std::int64_t count) {
  return static_cast<std::size_t>(width * Stride(count)) * kv::CodecBytes(kv::IndexCodec(codec));
}

std::byte* CodeIndex::Place(std::int32_t channel, std::int32_t code) {
  return data_.data() + static_cast<std::size_t>(channel * stride_ + code) * kv::CodecBytes(codec_);
}

Status CodeIndex::Reserve(std::int64_t count) {
  const std::int64_t stride = Stride(count);
  if (stride <= stride_) {
    return {};
  }
  Result<Buffer> data = Buffer::Allocate(Bytes(width_, codec_, count));
  if (!data) {
    return data.error();
  }
  meter_.AddIndex(data->size());  // both are held during the copy
  const std::size_t bytes = kv::CodecBytes(codec_);
  for (std::int32_t x = 0; x < width_ && count_ > 0; ++x) {
    std::memcpy(data->data() + static_cast<std::size_t>(x * stride) * bytes, Place(x, 0),
                static_cast<std::size_t>(count_) * bytes);
  }
  meter_.SubIndex(data_.size());
  data_ = *std::move(data);
  stride_ = stride;
  return {};
}

Status CodeIndex::Push(std::span<const float> code) {
  Check(static_cast<std::int32_t>(code.size()) == width_, "a code has one length");
  if (count_ >= stride_) {
    if (Status status = Reserve(stride_ + stride_ / 2); !status.ok()) {
      return status;
    }
  }
  for (std::int32_t x = 0; x < width_; ++x) {
    kv::EncodeRow(codec_, code.subspan(static_cast<std::size_t>(x), 1), Place(x, count_));
  }
  ++count_;
  return {};
}

void CodeIndex::Truncate(std::int32_t count) { count_ = std::min(count_, count); }

void CodeIndex::Keep(std::span<const std::int32_t> kept) {
  const std::size_t bytes = kv::CodecBytes(codec_);
  for (std::int32_t x = 0; x < width_; ++x) {
    for (std::size_t i = 0; i < kept.size(); ++i) {
      std::memmove(Place(x, static_cast<std::int32_t>(i)), Place(x, kept[i]), bytes);
    }
  }
  count_ = static_cast<std::int32_t>(kept.size());
}

}  // namespace rkv::policy
