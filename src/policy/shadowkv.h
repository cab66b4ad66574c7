// ShadowKvState: the mean key of every chunk of a head, and which chunks are outliers.
#ifndef RKV_POLICY_SHADOWKV_H_
#define RKV_POLICY_SHADOWKV_H_

#include <cstdint>
#include <span>
#include <vector>

#include "policy/code_index.h"
#include "policy/head_state.h"

namespace rkv::policy {

// Outliers are found at the end of a prompt; chunks that come later are never any. A chunk that is
// cut loses its place among them. Source: policy specification 2.15 (c).
class ShadowKvState final : public HeadState {
 public:
  // outliers: how many chunks are to be.
  ShadowKvState(const StateShape& shape, std::int32_t chunk_rows, std::int32_t outliers);

  // Mean keys ("landmarks"), one chunk of the view each: those of all chunks but the outliers.
  kv::IndexView landmarks() const { return landmarks_.view(); }
  // Chunks, ascending.
  std::span<const std::int32_t> outliers() const { return outliers_; }
  std::int32_t chunk_rows() const { return chunk_rows_; }

  Status Build(const StateBuild& build) override;
  Status Append(const kv::SlotView& rows) override;
  void Truncate(const kv::SlotView& rows) override;
  Status Keep(const kv::SlotView& rows, std::span<const std::int32_t> kept) override;

  static std::size_t Bytes(std::int32_t head_dim, kv::Codec codec, std::int32_t chunk_rows,
                           std::int64_t rows);

 private:
  std::int32_t chunk_rows_;
  std::int32_t wanted_outliers_;
  std::int32_t slots_ = 0;
  std::vector<std::int32_t> outliers_;
  CodeIndex landmarks_;
};

// The `count` whole chunks with the least cosine between a key and the chunk's mean key, lower
// chunk first on ties, ascending; none whose keys are all alike.
std::vector<std::int32_t> OutlierChunks(const kv::SlotView& rows, std::int32_t chunk_rows,
                                        std::int32_t count);

}  // namespace rkv::policy

#endif  // RKV_POLICY_SHADOWKV_H_
