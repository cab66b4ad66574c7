// Random key/value rows, with and without chunk index, for tests of code that reads kv views.
#ifndef RKV_TESTS_SUPPORT_TEST_HEAD_H_
#define RKV_TESTS_SUPPORT_TEST_HEAD_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "base/rng.h"
#include "kv/codec.h"
#include "kv/head_view.h"
#include "support/random.h"

namespace rkv::test {

// Owns the rows of one (layer, kv_head) and shows them as a HeadView. Every block is an allocation
// of its own and ends with its last row, so that AddressSanitizer sees reads behind it.
class TestHead {
 public:
  TestHead(std::int32_t head_dim, kv::Codec codec, std::int32_t rows)
      : head_dim_(head_dim), codec_(codec), positions_(static_cast<std::size_t>(rows)) {
    std::iota(positions_.begin(), positions_.end(), 0);
    for (std::int32_t first = 0; first < rows; first += kv::kBlockRows) {
      const auto count = static_cast<std::size_t>(std::min(kv::kBlockRows, rows - first));
      storage_.emplace_back(count * view().row_bytes());
      blocks_.push_back(storage_.back().data());
    }
  }

  // Normal keys and values.
  static TestHead Random(Rng& rng, std::int32_t head_dim, kv::Codec codec, std::int32_t rows,
                         float key_scale = 1.0f) {
    TestHead head(head_dim, codec, rows);
    for (std::int32_t row = 0; row < rows; ++row) {
      head.SetRow(row, NormalVector(rng, static_cast<std::size_t>(head_dim), key_scale),
                  NormalVector(rng, static_cast<std::size_t>(head_dim)));
    }
    return head;
  }

  void SetRow(std::int32_t row, std::span<const float> key, std::span<const float> value) {
    std::byte* to = MutableRow(row);
    kv::EncodeRow(codec_, key, to);
    kv::EncodeRow(codec_, value, to + view().value_offset(), kv::Part::kValue);
  }

  std::byte* MutableRow(std::int32_t row) {
    return storage_[static_cast<std::size_t>(row / kv::kBlockRows)].data() +
           static_cast<std::size_t>(row % kv::kBlockRows) * view().row_bytes();
  }

  // The key of a row as f32.
  std::vector<float> Key(std::int32_t row) const {
    std::vector<float> key(static_cast<std::size_t>(head_dim_));
    kv::DecodeRow(codec_, view().Key(row), key);
    return key;
  }

  kv::HeadView view() const {
    return {blocks_.data(), positions_.data(), static_cast<std::int32_t>(positions_.size()),
            head_dim_, codec_};
  }

 private:
  std::int32_t head_dim_;
  kv::Codec codec_;
  std::vector<std::int32_t> positions_;
  std::vector<std::vector<std::byte>> storage_;
  std::vector<const std::byte*> blocks_;
};

// Minima and maxima of a head's chunks, built the plain way. Ends with the last number.
class TestIndex {
 public:
  TestIndex(const TestHead& head, std::int32_t chunk_rows) {
    const kv::HeadView rows = head.view();
    view_ = {nullptr, 0, rows.head_dim, chunk_rows, rows.rows, kv::IndexCodec(rows.codec)};
    const auto chunks = static_cast<std::size_t>(view_.chunks());
    view_.stride = chunks + 3;
    const auto width = static_cast<std::size_t>(rows.head_dim);
    const std::size_t sides = chunk_rows == 1 ? 1 : 2;
    std::vector<float> channels(sides * width * view_.stride, 0.0f);
    for (std::int32_t row = 0; row < rows.rows; ++row) {
      const std::vector<float> key = head.Key(row);
      const auto chunk = static_cast<std::size_t>(row / chunk_rows);
      for (std::size_t x = 0; x < width; ++x) {
        float& low = channels[x * view_.stride + chunk];
        low = row % chunk_rows == 0 ? key[x] : std::min(low, key[x]);
        if (sides == 2) {
          float& high = channels[(x + width) * view_.stride + chunk];
          high = row % chunk_rows == 0 ? key[x] : std::max(high, key[x]);
        }
      }
    }
    if (!channels.empty()) {
      channels.resize(channels.size() - 3);
    }
    data_.resize(channels.size() * kv::CodecBytes(view_.codec));
    kv::EncodeRow(view_.codec, channels, data_.data());
  }
  TestIndex(const TestIndex&) = delete;
  TestIndex& operator=(const TestIndex&) = delete;

  kv::IndexView view() const {
    kv::IndexView out = view_;
    out.data = data_.data();
    return out;
  }

 private:
  kv::IndexView view_;
  std::vector<std::byte> data_;
};

// Mean squared difference over mean squared reference; 0 when both are all zero.
inline double Nmse(std::span<const float> reference, std::span<const float> other) {
  double error = 0.0;
  double power = 0.0;
  for (std::size_t i = 0; i < reference.size(); ++i) {
    const double difference = static_cast<double>(other[i]) - reference[i];
    error += difference * difference;
    power += static_cast<double>(reference[i]) * reference[i];
  }
  return error == 0.0 ? 0.0 : error / power;
}

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_TEST_HEAD_H_
