#include "model/expanded_linear.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "base/check.h"
#include "base/gemm.h"
#include "model/ops.h"
#include "model/pack_weights.h"

namespace rkv::model {
namespace {

using Form = ExpandedLinear::Form;

// Rows or panels that one task expands.
constexpr std::int64_t kTaskRows = 16;
// Tokens that one task prepares.
constexpr std::int64_t kRoundTokens = 16;

// A task's part of a product: tokens [first_token, first_token + tokens), columns likewise.
struct Tile {
  std::int32_t first_token;
  std::int32_t tokens;
  std::int32_t first_column;
  std::int32_t columns;
};

// Cuts tokens x out into tiles. Depends on the shape only.
class Tiles {
 public:
  Tiles(const ExpandedLinear& linear, std::int32_t tokens)
      : tokens_(tokens), out_(linear.linear().out) {
    const bool blocks = linear.form() == Form::kBlocks;
    // Of BlockGemm: tokens enough to reuse a panel, weights few enough that threads end together.
    slice_ = blocks ? 96 : 128;
    slices_ = (tokens + slice_ - 1) / slice_;
    if (blocks) {
      constexpr std::int32_t kTaskWeights = 1 << 18;
      const std::int32_t pairs = kTaskWeights / linear.linear().in / (2 * kPackedRows);
      columns_ = std::max(pairs, 1) * 2 * kPackedRows;
    } else {
      columns_ = GemmColumns();
    }
    blocks_ = (out_ + columns_ - 1) / columns_;
  }

  std::int64_t count() const { return std::int64_t{slices_} * blocks_; }

  Tile At(std::int64_t task) const {
    Tile tile{};
    tile.first_token = static_cast<std::int32_t>(task / blocks_) * slice_;
    tile.tokens = std::min(slice_, tokens_ - tile.first_token);
    tile.first_column = static_cast<std::int32_t>(task % blocks_) * columns_;
    tile.columns = std::min(columns_, out_ - tile.first_column);
    return tile;
  }

 private:
  // oneDNN prefers large products: columns are cut only when the slices are few.
  std::int32_t GemmColumns() const {
    constexpr std::int32_t kMinColumns = 256;
    constexpr std::int64_t kWantedTasks = 16;
    const std::int64_t wanted = slices_ == 0 ? 1 : (kWantedTasks + slices_ - 1) / slices_;
    const std::int64_t blocks =
        std::clamp<std::int64_t>(out_ / kMinColumns, 1, std::max<std::int64_t>(wanted, 1));
    return static_cast<std::int32_t>((out_ / blocks + 63) / 64 * 64);
  }

  std::int32_t tokens_;
  std::int32_t out_;
  std::int32_t slice_;
  std::int32_t slices_;
  std::int32_t columns_;
  std::int32_t blocks_;
};

void AddBias(const Linear& linear, const Tile& tile, float* y, std::size_t y_stride) {
  if (linear.bias.empty()) {
    return;
  }
  const auto columns = static_cast<std::size_t>(tile.columns);
  for (std::int32_t t = 0; t < tile.tokens; ++t) {
    AddTo({y + static_cast<std::size_t>(t) * y_stride, columns},
          {linear.bias.data() + tile.first_column, columns});
  }
}

// One tile by oneDNN; to: the tile's first number.
void MultiplyByGemm(const ExpandedLinear& expanded, const MatMulInput& input, const Tile& tile,
                    const MatMulJob& job, Scratch& scratch) {
  const Linear& linear = expanded.linear();
  const bool bf16 = expanded.form() == Form::kBf16;
  const auto in = static_cast<std::size_t>(linear.in);
  const float* from = input.x + static_cast<std::size_t>(tile.first_token) * input.stride;
  float* to = job.y + static_cast<std::size_t>(tile.first_token) * job.y_stride + tile.first_column;
  const std::size_t first_weight = static_cast<std::size_t>(tile.first_column) * in;
  GemmShape shape{.m = tile.tokens, .n = tile.columns, .k = linear.in, .b_transposed = true};
  shape.lda = static_cast<std::int64_t>(bf16 ? in : input.stride);
  shape.ldb = linear.in;
  shape.ldc = static_cast<std::int64_t>(job.y_stride);
  if (bf16) {
    const auto rows = static_cast<std::size_t>(tile.tokens);
    Scratch::Frame frame(scratch);
    std::uint16_t* rounded = frame.Array<std::uint16_t>(rows * in);
    for (std::size_t t = 0; t < rows; ++t) {
      RoundToBf16({from + t * input.stride, in}, {rounded + t * in, in});
    }
    GemmBf16(shape, rounded, reinterpret_cast<const std::uint16_t*>(expanded.rows()) + first_weight,
             to);
  } else {
    GemmF32(shape, from, reinterpret_cast<const float*>(expanded.rows()) + first_weight, to);
  }
  AddBias(linear, tile, to, job.y_stride);
}

void MultiplyByBlocks(const ExpandedLinear& expanded, const RoundedRows& rounded, const Tile& tile,
                      const MatMulJob& job) {
  const Linear& linear = expanded.linear();
  BlockGemm(
      expanded.panels(), rounded,
      {tile.first_token, tile.tokens, tile.first_column / kPackedRows, PanelCount(tile.columns)},
      linear.bias.empty() ? nullptr : linear.bias.data(), job.y, job.y_stride);
}

// Rows [first, first + rows) as f32; from packed weights the first must be a panel's.
void ExpandTaskRows(const Linear& linear, std::int64_t first, std::size_t rows, float* out) {
  static_assert(kTaskRows == kPackedRows);
  if (linear.packed != nullptr) {
    UnpackRows(linear.packed_matrix(), first / kPackedRows, out);
    return;
  }
  const auto in = static_cast<std::size_t>(linear.in);
  for (std::size_t row = 0; row < rows; ++row) {
    ExpandRow(linear, static_cast<std::int32_t>(first) + static_cast<std::int32_t>(row),
              {out + row * in, in});
  }
}

// Makes the rows of the input, if they are to be made, and rounds them, if `rounded` is not null.
void PrepareInput(const MatMulInput& input, const RoundedRows* rounded, ThreadPool& pool) {
  const auto prepare = [&](std::int64_t task, const ThreadPool::Worker&) {
    const std::int64_t end = std::min<std::int64_t>((task + 1) * kRoundTokens, input.tokens);
    for (std::int64_t t = task * kRoundTokens; t < end; ++t) {
      const auto token = static_cast<std::int32_t>(t);
      if (input.make) {
        input.make(token);
      }
      if (rounded != nullptr) {
        rounded->Round(token, input.x + static_cast<std::size_t>(t) * input.stride);
      }
    }
  };
  if (input.make || rounded != nullptr) {
    pool.ParallelFor((input.tokens + kRoundTokens - 1) / kRoundTokens, std::cref(prepare));
  }
}

}  // namespace

ExpandedLinear::Form ExpandedLinear::FormOf(const Linear& linear, Compute compute) {
  if (compute == Compute::kF32) {
    return Form::kF32;
  }
  if (HasMatrixUnits()) {
    return Form::kBf16;
  }
  const bool blocks =
      linear.in % kPackedBlock == 0 && BestPanelForm(linear.type).isa != BlockIsa::kNone;
  return blocks ? Form::kBlocks : Form::kF32;
}

std::size_t ExpandedLinear::Bytes(const Linear& linear, Compute compute) {
  const Form form = FormOf(linear, compute);
  if (form == Form::kBlocks) {
    return AllPanelBytes(BestPanelForm(linear.type).kind, linear.in, linear.out);
  }
  return static_cast<std::size_t>(linear.in) * static_cast<std::size_t>(linear.out) *
         (form == Form::kBf16 ? sizeof(std::uint16_t) : sizeof(float));
}

ExpandedLinear::ExpandedLinear(const Linear& linear, Compute compute, std::byte* memory,
                               ThreadPool& pool)
    : linear_(&linear),
      form_(FormOf(linear, compute)),
      panel_form_(BestPanelForm(linear.type)),
      memory_(memory) {
  if (form_ == Form::kBlocks) {
    ExpandPanels(memory, pool);
  } else {
    ExpandRows(memory, pool);
  }
}

PanelWeights ExpandedLinear::panels() const {
  return {memory_, linear_->in, linear_->out, panel_form_};
}

void ExpandedLinear::ExpandRows(std::byte* memory, ThreadPool& pool) const {
  const bool bf16 = form_ == Form::kBf16;
  const auto in = static_cast<std::size_t>(linear_->in);
  const auto run = [&](std::int64_t task, const ThreadPool::Worker& worker) {
    Scratch::Frame frame(worker.scratch);
    float* expanded = frame.Array<float>(in * kTaskRows);
    const std::int64_t first = task * kTaskRows;
    const auto rows = static_cast<std::size_t>(std::min(linear_->out - first, kTaskRows));
    ExpandTaskRows(*linear_, first, rows, expanded);
    const std::size_t place = static_cast<std::size_t>(first) * in;
    if (bf16) {
      RoundToBf16({expanded, rows * in},
                  {reinterpret_cast<std::uint16_t*>(memory) + place, rows * in});
    } else {
      std::copy_n(expanded, rows * in, reinterpret_cast<float*>(memory) + place);
    }
  };
  pool.ParallelFor((linear_->out + kTaskRows - 1) / kTaskRows, std::cref(run));
}

void ExpandedLinear::ExpandPanels(std::byte* memory, ThreadPool& pool) const {
  const Linear& linear = *linear_;
  const std::size_t packed_bytes = PackedPanelBytes(linear.type, linear.in);
  const auto run = [&](std::int64_t panel, const ThreadPool::Worker& worker) {
    Scratch::Frame frame(worker.scratch);
    const std::byte* packed = linear.packed + static_cast<std::size_t>(panel) * packed_bytes;
    if (linear.packed == nullptr) {
      auto* now = frame.Array<std::byte>(packed_bytes);
      PackPanel(linear, panel, now);
      packed = now;
    }
    ExpandPanel(linear.type, packed, linear.in, panel_form_,
                memory + static_cast<std::size_t>(panel) * PanelBytes(panel_form_.kind, linear.in));
  };
  pool.ParallelFor(PanelCount(linear.out), std::cref(run));
}

std::size_t MatMulBytes(std::int32_t in, std::int32_t tokens) {
  return in % kPackedBlock == 0 ? RoundedRows::Bytes(in, tokens) : 0;
}

void MatMul(std::span<const MatMulJob> jobs, const MatMulInput& input, std::byte* memory,
            ThreadPool& pool) {
  if (jobs.empty() || input.tokens <= 0) {
    return;
  }
  const std::int32_t in = jobs.front().linear->linear().in;
  RoundedRows rounded;
  std::vector<Tiles> tiles;
  std::int64_t tasks = 0;
  bool blocks = false;
  for (const MatMulJob& job : jobs) {
    Check(job.linear->linear().in == in, "MatMul jobs share their input");
    tiles.emplace_back(*job.linear, input.tokens);
    tasks += tiles.back().count();
    blocks = blocks || job.linear->form() == Form::kBlocks;
  }
  if (blocks) {
    rounded = RoundedRows::In(memory, in, input.tokens);
  }
  PrepareInput(input, blocks ? &rounded : nullptr, pool);
  const auto run = [&](std::int64_t task, const ThreadPool::Worker& worker) {
    std::size_t j = 0;
    for (; task >= tiles[j].count(); ++j) {
      task -= tiles[j].count();
    }
    const MatMulJob& job = jobs[j];
    const Tile tile = tiles[j].At(task);
    if (job.linear->form() == Form::kBlocks) {
      MultiplyByBlocks(*job.linear, rounded, tile, job);
    } else {
      MultiplyByGemm(*job.linear, input, tile, job, worker.scratch);
    }
  };
  pool.ParallelFor(tasks, std::cref(run));
}

}  // namespace rkv::model
