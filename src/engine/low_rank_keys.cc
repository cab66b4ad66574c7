#include "engine/low_rank_keys.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <span>
#include <vector>

namespace rkv::engine {
namespace {

using Keys = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

std::size_t Size(std::int64_t n) { return static_cast<std::size_t>(n); }

constexpr std::int32_t kBlock = 128;  // rows at once
constexpr std::int32_t kParts = 8;    // sums that are added in order, whatever the threads

// Keys of some kv_heads that hold the same positions, as one wide row each.
class KeyMatrix {
 public:
  KeyMatrix(const Runtime& runtime, std::span<kv::HeadStore> heads)
      : rope_(runtime.model->rope()),
        pool_(*runtime.pool),
        codec_(runtime.codec),
        head_dim_(runtime.params().head_dim),
        heads_(heads),
        rows_(heads[0].rows()),
        width_(head_dim_ * static_cast<std::int32_t>(heads.size())) {}

  // exact: [heads], ascending rows.
  void Project(std::int32_t rank, std::span<const std::vector<std::int32_t>> exact) {
    const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(Gram());
    const Keys directions = solver.eigenvectors().rightCols(rank).cast<float>();
    const std::int64_t blocks = (rows_ + kBlock - 1) / kBlock;
    pool_.ParallelFor(blocks, [&](std::int64_t task, const ThreadPool::Worker&) {
      const auto first = static_cast<std::int32_t>(task * kBlock);
      const std::int32_t count = std::min(kBlock, rows_ - first);
      const Keys codes = Read(first, count) * directions;
      Keys keys = codes * directions.transpose();
      Write(first, keys, exact);
    });
  }

 private:
  // cos, sin of a position, or those that turn back: what Apply multiplied by may be no rotation
  // alone where RoPE is scaled.
  std::vector<float> Angles(std::int32_t position, bool back) const {
    std::vector<float> angles(Size(rope_.dims()));
    rope_.Angles(position, angles);
    for (std::size_t i = 0; back && i + 1 < angles.size(); i += 2) {
      const float norm = angles[i] * angles[i] + angles[i + 1] * angles[i + 1];
      angles[i] /= norm;
      angles[i + 1] /= -norm;
    }
    return angles;
  }

  // Rows [first, first + count) before RoPE.
  Keys Read(std::int32_t first, std::int32_t count) const {
    Keys keys(count, width_);
    for (std::int32_t i = 0; i < count; ++i) {
      float* row = keys.row(i).data();
      for (std::size_t h = 0; h < heads_.size(); ++h) {
        kv::DecodeRow(codec_, heads_[h].view().Key(first + i),
                      {row + h * Size(head_dim_), Size(head_dim_)});
      }
      const std::int32_t position = heads_[0].view().positions[first + i];
      rope_.Apply(Angles(position, true), row, static_cast<std::int32_t>(heads_.size()), head_dim_);
    }
    return keys;
  }

  void Write(std::int32_t first, Keys& keys, std::span<const std::vector<std::int32_t>> exact) {
    for (std::int32_t i = 0; i < keys.rows(); ++i) {
      float* row = keys.row(i).data();
      const std::int32_t position = heads_[0].view().positions[first + i];
      rope_.Apply(Angles(position, false), row, static_cast<std::int32_t>(heads_.size()),
                  head_dim_);
      for (std::size_t h = 0; h < heads_.size(); ++h) {
        if (!std::ranges::binary_search(exact[h], first + i)) {
          kv::EncodeRow(codec_, {row + h * Size(head_dim_), Size(head_dim_)},
                        heads_[h].MutableRow(first + i));
        }
      }
    }
  }

  Eigen::MatrixXd Gram() const {
    std::vector<Keys> parts(kParts, Keys::Zero(width_, width_));
    pool_.ParallelFor(kParts, [&](std::int64_t task, const ThreadPool::Worker&) {
      for (auto first = static_cast<std::int32_t>(task * kBlock); first < rows_;
           first += kParts * kBlock) {
        const Keys keys = Read(first, std::min(kBlock, rows_ - first));
        parts[Size(task)].noalias() += keys.transpose() * keys;
      }
    });
    Eigen::MatrixXd sum = Eigen::MatrixXd::Zero(width_, width_);
    for (const Keys& part : parts) {
      sum += part.cast<double>();
    }
    return sum;
  }

  const model::Rope& rope_;
  ThreadPool& pool_;
  kv::Codec codec_;
  std::int32_t head_dim_;
  std::span<kv::HeadStore> heads_;
  std::int32_t rows_;
  std::int32_t width_;
};

bool SamePositions(std::span<const kv::HeadStore> heads) {
  const kv::HeadView one = heads[0].view();
  return std::ranges::all_of(heads, [&](const kv::HeadStore& head) {
    return std::equal(one.positions, one.positions + one.rows, head.view().positions,
                      head.view().positions + head.view().rows);
  });
}

}  // namespace

// Parts of the Gram matrix in f32; sum, solver's copy and eigenvectors in double.
std::size_t ReduceKeysBytes(const Runtime& runtime) {
  const std::size_t width = Size(runtime.params().kv_width());
  return width * width * (kParts * sizeof(float) + 3 * sizeof(double));
}

void ReduceKeys(const Runtime& runtime, SessionState& session, std::int32_t layer) {
  LayerCache& cache = session.layers[Size(layer)];
  std::vector<std::vector<std::int32_t>> exact(cache.heads.size());
  for (std::size_t h = 0; h < exact.size(); ++h) {
    if (cache.states[h] != nullptr) {
      session.policy->ExactKeys(session.shape, *cache.states[h], cache.Slots(h).slots, exact[h]);
    }
  }
  const std::span<kv::HeadStore> heads = cache.heads;
  const std::int32_t rank = session.needs.key_rank;
  if (SamePositions(heads)) {
    KeyMatrix(runtime, heads).Project(rank, exact);
    return;
  }
  const auto share = (rank + static_cast<std::int32_t>(heads.size()) - 1) /
                     static_cast<std::int32_t>(heads.size());
  for (std::size_t h = 0; h < heads.size(); ++h) {
    KeyMatrix(runtime, heads.subspan(h, 1)).Project(share, std::span(exact).subspan(h, 1));
  }
}

}  // namespace rkv::engine
