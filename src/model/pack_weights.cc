#include "model/pack_weights.h"

#include <algorithm>

#include "model/packed_dot.h"
#include "model/packed_matrix.h"

namespace rkv::model {
namespace {

constexpr std::size_t kLine = 64;

std::size_t BytesOf(const Linear& linear) {
  const std::size_t bytes = PackedMatrixBytes(linear.type, linear.in, linear.out);
  return (bytes + kLine - 1) / kLine * kLine;
}

void PackMatrix(const Linear& linear, std::byte* to, ThreadPool& pool) {
  const std::size_t panel_bytes = PackedPanelBytes(linear.type, linear.in);
  const auto pack = [&](std::int64_t panel, const ThreadPool::Worker&) {
    PackPanel(linear, panel, to + static_cast<std::size_t>(panel) * panel_bytes);
  };
  pool.ParallelFor(PanelCount(linear.out), std::cref(pack));
}

}  // namespace

bool CanPack(const Linear& linear) { return HasPackedDot(BestBlockIsa(), linear.type, linear.in); }

void PackPanel(const Linear& linear, std::int64_t panel, std::byte* to) {
  const std::int64_t row = panel * kPackedRows;
  const auto rows =
      static_cast<std::int32_t>(std::min<std::int64_t>(kPackedRows, linear.out - row));
  PackRows(linear.type, linear.data + static_cast<std::size_t>(row) * linear.row_bytes,
           linear.row_bytes, rows, linear.in, to);
}

std::size_t PackedWeightBytes(std::span<Linear* const> matrices) {
  std::size_t bytes = 0;
  for (const Linear* linear : matrices) {
    bytes += CanPack(*linear) ? BytesOf(*linear) : 0;
  }
  return bytes;
}

Result<Buffer> PackWeights(std::span<Linear* const> matrices, ThreadPool& pool,
                           const std::function<void(std::span<const std::byte>)>& release) {
  Result<Buffer> memory = Buffer::Allocate(PackedWeightBytes(matrices));
  if (!memory) {
    return memory;
  }
  std::byte* place = memory->data();
  for (Linear* linear : matrices) {
    if (CanPack(*linear)) {
      PackMatrix(*linear, place, pool);
      linear->packed = place;
      place += BytesOf(*linear);
      release({linear->data, linear->row_bytes * static_cast<std::size_t>(linear->out)});
    }
  }
  return memory;
}

}  // namespace rkv::model
