#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "policy/policy.h"
#include "policy/shadowkv.h"

namespace rkv::policy {
namespace {

// Keys within this cosine of their mean are alike up to rounding.
constexpr double kAlike = 1 - 1e-6;

// Mean of the keys of slots [begin, end).
std::vector<float> MeanKey(const kv::SlotView& rows, std::int32_t begin, std::int32_t end) {
  std::vector<double> sum(static_cast<std::size_t>(rows.head.head_dim), 0.0);
  std::vector<float> key(sum.size());
  for (std::int32_t slot = begin; slot < end; ++slot) {
    kv::DecodeRow(rows.head.codec, rows.Key(slot), key);
    std::ranges::transform(sum, key, sum.begin(), [](double s, float k) { return s + k; });
  }
  std::ranges::transform(sum, key.begin(),
                         [&](double s) { return static_cast<float>(s / (end - begin)); });
  return key;
}

double Cosine(std::span<const float> a, std::span<const float> b) {
  const auto dot = [](std::span<const float> x, std::span<const float> y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
  };
  const double norm = std::sqrt(dot(a, a) * dot(b, b));
  return norm > 0 ? dot(a, b) / norm : 1.0;
}

// The least cosine between a key of the chunk and its mean.
double LeastCosine(const kv::SlotView& rows, std::int32_t begin, std::int32_t end) {
  const std::vector<float> mean = MeanKey(rows, begin, end);
  std::vector<float> key(mean.size());
  double least = 1;
  for (std::int32_t slot = begin; slot < end; ++slot) {
    kv::DecodeRow(rows.head.codec, rows.Key(slot), key);
    least = std::min(least, Cosine(key, mean));
  }
  return least;
}

}  // namespace

std::vector<std::int32_t> OutlierChunks(const kv::SlotView& rows, std::int32_t chunk_rows,
                                        std::int32_t count) {
  std::vector<double> least;
  for (std::int32_t end = chunk_rows; end <= rows.slots && count > 0; end += chunk_rows) {
    least.push_back(LeastCosine(rows, end - chunk_rows, end));
  }
  std::vector<std::int32_t> order(least.size());
  std::iota(order.begin(), order.end(), 0);
  const auto cosine = [&](std::int32_t chunk) { return least[static_cast<std::size_t>(chunk)]; };
  std::erase_if(order, [&](std::int32_t chunk) { return !(cosine(chunk) < kAlike); });
  std::ranges::stable_sort(order,
                           [&](std::int32_t a, std::int32_t b) { return cosine(a) < cosine(b); });
  order.resize(std::min(order.size(), static_cast<std::size_t>(count)));
  std::ranges::sort(order);
  return order;
}

ShadowKvState::ShadowKvState(const StateShape& shape, std::int32_t chunk_rows,
                             std::int32_t outliers)
    : chunk_rows_(chunk_rows),
      wanted_outliers_(outliers),
      landmarks_(shape.turn->head_dim, shape.codec, *shape.meter) {}

std::size_t ShadowKvState::Bytes(std::int32_t head_dim, kv::Codec codec, std::int32_t chunk_rows,
                                 std::int64_t rows) {
  return CodeIndex::Bytes(head_dim, codec, (rows + chunk_rows - 1) / chunk_rows);
}

Status ShadowKvState::Build(const StateBuild& build) {
  outliers_ = OutlierChunks(build.rows, chunk_rows_, wanted_outliers_);
  slots_ = 0;
  landmarks_.Truncate(0);
  const std::int64_t rows = std::int64_t{build.rows.slots} + build.spare_rows;
  Status status = landmarks_.Reserve((rows + chunk_rows_ - 1) / chunk_rows_);
  return status.ok() ? Append(build.rows) : status;
}

// The mean of a chunk that was not full is made anew.
Status ShadowKvState::Append(const kv::SlotView& rows) {
  if (slots_ % chunk_rows_ != 0 && slots_ < rows.slots) {
    landmarks_.Truncate(landmarks_.count() - 1);
    slots_ -= slots_ % chunk_rows_;
  }
  for (; slots_ < rows.slots; slots_ = std::min(rows.slots, slots_ + chunk_rows_)) {
    if (std::ranges::binary_search(outliers_, slots_ / chunk_rows_)) {
      continue;
    }
    const std::int32_t end = std::min(rows.slots, slots_ + chunk_rows_);
    if (Status status = landmarks_.Push(MeanKey(rows, slots_, end)); !status.ok()) {
      return status;
    }
  }
  return {};
}

void ShadowKvState::Truncate(const kv::SlotView& rows) {
  const std::int32_t whole = rows.slots / chunk_rows_;
  std::erase_if(outliers_, [&](std::int32_t chunk) { return chunk >= whole; });
  slots_ = std::min(slots_, whole * chunk_rows_);
  landmarks_.Truncate(whole - static_cast<std::int32_t>(outliers_.size()));
  (void)Append(rows);  // the chunk that is cut: the room is there
}

Status ShadowKvState::Keep(const kv::SlotView& rows, std::span<const std::int32_t> /*kept*/) {
  return Build({.rows = rows});
}

}  // namespace rkv::policy
