#include "model/linear.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>

#include "base/check.h"
#include "base/gemm.h"
#include "model/block_gemm.h"
#include "model/ops.h"
#include "model/packed_dot.h"

namespace rkv::model {
namespace {

// Weight bytes of one task of MatVec: small enough that threads end together, large enough that
// taking a task costs nothing beside it. Tasks never depend on the number of threads.
constexpr std::size_t kTaskBytes = std::size_t{16} << 10;
constexpr std::int32_t kTaskTokens = 128;
constexpr std::int32_t kMinTaskColumns = 256;
constexpr std::int64_t kWantedTasks = 16;

ggml_type Type(const Linear& linear) { return static_cast<ggml_type>(linear.type); }

const std::byte* Row(const Linear& linear, std::int64_t row) {
  return linear.data + static_cast<std::size_t>(row) * linear.row_bytes;
}

// ggml's tables (f16, GELU) must be filled once before any of its functions runs.
void InitGgml() {
  static std::once_flag once;
  std::call_once(once, ggml_cpu_init);
}

void Expand(const Linear& linear, std::int64_t row, float* out) {
  const auto in = static_cast<std::size_t>(linear.in);
  if (linear.type == GGML_TYPE_F32) {
    std::memcpy(out, Row(linear, row), in * sizeof(float));
    return;
  }
  ggml_get_type_traits(Type(linear))->to_float(Row(linear, row), out, linear.in);
}

// The input of one job: rounded for packed weights, or in the type that ggml dots its rows with.
struct Input {
  ggml_type type = GGML_TYPE_COUNT;  // GGML_TYPE_COUNT: rounded for packed weights
  const std::byte* rows = nullptr;   // [tokens]
  std::size_t row_bytes = 0;
  const RoundedInput* rounded = nullptr;  // [tokens]
};

// x [tokens][in] in every form that the jobs need.
class Inputs {
 public:
  Inputs(std::span<const MatVecJob> jobs, const float* x, std::int32_t tokens, Compute compute,
         Scratch::Frame& frame)
      : x_(x), tokens_(tokens), in_(jobs.front().linear->in) {
    for (const MatVecJob& job : jobs) {
      const ggml_type type = FormOf(*job.linear, compute);
      if (Find(type) == nullptr) {
        Check(count_ < kMaxForms, "too many types share an input");
        inputs_[count_++] = Make(type, frame);
      }
    }
  }

  static ggml_type FormOf(const Linear& linear, Compute compute) {
    if (compute == Compute::kF32) {
      return GGML_TYPE_F32;
    }
    return linear.packed != nullptr ? GGML_TYPE_COUNT
                                    : ggml_get_type_traits_cpu(Type(linear))->vec_dot_type;
  }

  const Input* Find(ggml_type type) const {
    const Input* end = inputs_ + count_;
    const Input* found =
        std::find_if(inputs_, end, [type](const Input& input) { return input.type == type; });
    return found == end ? nullptr : found;
  }

 private:
  static constexpr std::size_t kMaxForms = 4;

  Input Make(ggml_type type, Scratch::Frame& frame) const {
    Input input{.type = type};
    const auto tokens = static_cast<std::size_t>(tokens_);
    const auto in = static_cast<std::size_t>(in_);
    if (type == GGML_TYPE_COUNT) {
      auto* rounded = frame.Array<RoundedInput>(tokens);
      for (std::size_t t = 0; t < tokens; ++t) {
        rounded[t] = RoundInput(BestPackedTarget(), x_ + t * in, in_, frame);
      }
      input.rounded = rounded;
      return input;
    }
    input.row_bytes = ggml_row_size(type, in_);
    if (type == GGML_TYPE_F32) {
      input.rows = reinterpret_cast<const std::byte*>(x_);
      return input;
    }
    auto* rows = frame.Array<std::byte>(input.row_bytes * tokens);
    for (std::size_t t = 0; t < tokens; ++t) {
      ggml_get_type_traits_cpu(type)->from_float(x_ + t * in, rows + t * input.row_bytes, in_);
    }
    input.rows = rows;
    return input;
  }

  const float* x_;
  std::int32_t tokens_;
  std::int32_t in_;
  Input inputs_[kMaxForms];
  std::size_t count_ = 0;
};

// Rows of every task but the last, which is not much shorter.
std::int64_t RowsPerTask(const Linear& linear) {
  const std::size_t bytes = linear.row_bytes * static_cast<std::size_t>(linear.out);
  const auto tasks = static_cast<std::int64_t>(bytes / kTaskBytes + 1);
  const std::int64_t rows = (linear.out + tasks - 1) / tasks;
  return (rows + kPackedRows - 1) / kPackedRows * kPackedRows;  // whole panels
}

std::int64_t RowTasks(const Linear& linear) {
  return (linear.out + RowsPerTask(linear) - 1) / RowsPerTask(linear);
}

// Rows [begin, end) of one job in ggml's layout.
void DotRows(const MatVecJob& job, const Input& input, std::int32_t tokens, std::int64_t begin,
             std::int64_t end) {
  const Linear& linear = *job.linear;
  const ggml_vec_dot_t dot = ggml_get_type_traits_cpu(Type(linear))->vec_dot;
  for (std::int64_t row = begin; row < end; ++row) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      dot(linear.in, job.y + t * linear.out + row, 0, Row(linear, row), 0,
          input.rows + static_cast<std::size_t>(t) * input.row_bytes, 0, 1);
    }
  }
}

void DotRowsF32(const MatVecJob& job, const Input& input, std::int32_t tokens, std::int64_t begin,
                std::int64_t end, Scratch& scratch) {
  const Linear& linear = *job.linear;
  const ggml_vec_dot_t dot = ggml_get_type_traits_cpu(GGML_TYPE_F32)->vec_dot;
  Scratch::Frame frame(scratch);
  float* expanded = frame.Array<float>(static_cast<std::size_t>(linear.in));
  for (std::int64_t row = begin; row < end; ++row) {
    Expand(linear, row, expanded);
    for (std::int64_t t = 0; t < tokens; ++t) {
      dot(linear.in, job.y + t * linear.out + row, 0, expanded, 0,
          input.rows + static_cast<std::size_t>(t) * input.row_bytes, 0, 1);
    }
  }
}

// Rows [begin, end), whole panels of them but for the last.
void DotPacked(const MatVecJob& job, const Input& input, std::int32_t tokens, std::int64_t begin,
               std::int64_t end) {
  const PackedMatrix weights = job.linear->packed_matrix();
  for (std::int32_t t = 0; t < tokens; t += kPackedTokens) {
    DotPanels(
        BestPackedTarget(), weights, begin / kPackedRows, (end + kPackedRows - 1) / kPackedRows,
        input.rounded + t, std::min(kPackedTokens, tokens - t),
        job.y + static_cast<std::int64_t>(t) * weights.out, static_cast<std::size_t>(weights.out));
  }
}

void AddBias(const std::vector<float>& bias, std::int64_t begin, std::int64_t end, float* y) {
  if (!bias.empty()) {
    AddTo({y + begin, y + end}, {bias.data() + begin, bias.data() + end});
  }
}

// A task's part of a product: tokens [first_token, first_token + tokens), columns likewise.
struct Tile {
  std::int32_t first_token;
  std::int32_t tokens;
  std::int32_t first_column;
  std::int32_t columns;
};

// Cuts tokens x out into tiles: token slices, and blocks of columns when the slices are few.
// Depends on the shape only.
class Tiles {
 public:
  Tiles(std::int32_t tokens, std::int32_t out) : tokens_(tokens), out_(out) {
    slices_ = (tokens + kTaskTokens - 1) / kTaskTokens;
    const std::int64_t wanted = slices_ == 0 ? 1 : (kWantedTasks + slices_ - 1) / slices_;
    const std::int64_t blocks =
        std::clamp<std::int64_t>(out / kMinTaskColumns, 1, std::max<std::int64_t>(wanted, 1));
    columns_ = static_cast<std::int32_t>((out / blocks + 63) / 64 * 64);
    blocks_ = (out + columns_ - 1) / columns_;
  }

  std::int64_t count() const { return std::int64_t{slices_} * blocks_; }

  Tile At(std::int64_t task) const {
    Tile tile{};
    tile.first_token = static_cast<std::int32_t>(task / blocks_) * kTaskTokens;
    tile.tokens = std::min(kTaskTokens, tokens_ - tile.first_token);
    tile.first_column = static_cast<std::int32_t>(task % blocks_) * columns_;
    tile.columns = std::min(columns_, out_ - tile.first_column);
    return tile;
  }

 private:
  std::int32_t tokens_;
  std::int32_t out_;
  std::int32_t slices_;
  std::int32_t columns_;
  std::int32_t blocks_;
};

}  // namespace

void MatVec(std::span<const MatVecJob> jobs, const float* x, std::int32_t tokens, Compute compute,
            ThreadPool& pool) {
  if (jobs.empty() || tokens <= 0) {
    return;
  }
  InitGgml();
  std::int64_t tasks = 0;
  for (const MatVecJob& job : jobs) {
    Check(job.linear->in == jobs.front().linear->in, "MatVec jobs share their input");
    tasks += RowTasks(*job.linear);
  }
  Scratch::Frame frame(pool.caller_scratch());
  const Inputs inputs(jobs, x, tokens, compute, frame);
  const auto run = [&](std::int64_t task, const ThreadPool::Worker& worker) {
    const MatVecJob* job = jobs.data();
    for (; task >= RowTasks(*job->linear); ++job) {
      task -= RowTasks(*job->linear);
    }
    const Linear& linear = *job->linear;
    const std::int64_t begin = task * RowsPerTask(linear);
    const std::int64_t end = std::min<std::int64_t>(linear.out, begin + RowsPerTask(linear));
    const Input& input = *inputs.Find(Inputs::FormOf(linear, compute));
    if (compute == Compute::kF32) {
      DotRowsF32(*job, input, tokens, begin, end, worker.scratch);
    } else if (linear.packed != nullptr) {
      DotPacked(*job, input, tokens, begin, end);
    } else {
      DotRows(*job, input, tokens, begin, end);
    }
    for (std::int64_t t = 0; t < tokens; ++t) {
      AddBias(linear.bias, begin, end, job->y + t * linear.out);
    }
  };
  pool.ParallelFor(tasks, std::cref(run));
}

ExpandedLinear::Form ExpandedLinear::FormOf(const Linear& linear, Compute compute) {
  if (compute == Compute::kF32) {
    return Form::kF32;
  }
  if (HasBf16Gemm()) {
    return Form::kBf16;
  }
  return HasBlockGemm() && IsBlockGemmType(linear.type) ? Form::kBlocks : Form::kF32;
}

std::size_t ExpandedLinear::Bytes(const Linear& linear, Compute compute) {
  const Form form = FormOf(linear, compute);
  if (form == Form::kBlocks) {
    return PackedBytes(linear.in, linear.out);
  }
  return static_cast<std::size_t>(linear.in) * static_cast<std::size_t>(linear.out) *
         (form == Form::kBf16 ? sizeof(std::uint16_t) : sizeof(float));
}

ExpandedLinear::ExpandedLinear(const Linear& linear, Compute compute, std::byte* memory,
                               ThreadPool& pool)
    : linear_(&linear), form_(FormOf(linear, compute)), memory_(memory) {
  InitGgml();
  if (form_ == Form::kBlocks) {
    PackPanels(memory, pool);
  } else {
    ExpandRows(memory, pool);
  }
}

void ExpandedLinear::ExpandRows(std::byte* memory, ThreadPool& pool) const {
  const bool bf16 = form_ == Form::kBf16;
  const auto in = static_cast<std::size_t>(linear_->in);
  const std::size_t row_bytes = in * (bf16 ? sizeof(std::uint16_t) : sizeof(float));
  const std::int64_t rows = RowsPerTask(*linear_);
  const auto run = [&](std::int64_t task, const ThreadPool::Worker& worker) {
    Scratch::Frame frame(worker.scratch);
    float* expanded = bf16 ? frame.Array<float>(in) : nullptr;
    const std::int64_t end = std::min<std::int64_t>(linear_->out, (task + 1) * rows);
    for (std::int64_t row = task * rows; row < end; ++row) {
      std::byte* out = memory + static_cast<std::size_t>(row) * row_bytes;
      if (!bf16) {
        Expand(*linear_, row, reinterpret_cast<float*>(out));
        continue;
      }
      Expand(*linear_, row, expanded);
      RoundToBf16({expanded, in}, {reinterpret_cast<std::uint16_t*>(out), in});
    }
  };
  pool.ParallelFor(RowTasks(*linear_), std::cref(run));
}

void ExpandedLinear::PackPanels(std::byte* memory, ThreadPool& pool) const {
  const auto run = [&](std::int64_t panel, const ThreadPool::Worker&) {
    const std::int64_t first = panel * kPanelRows;
    const auto rows =
        static_cast<std::int32_t>(std::min<std::int64_t>(kPanelRows, linear_->out - first));
    PackPanel(linear_->type, Row(*linear_, first), linear_->row_bytes, rows, linear_->in,
              memory + static_cast<std::size_t>(panel) * PanelBytes(linear_->in));
  };
  pool.ParallelFor((linear_->out + kPanelRows - 1) / kPanelRows, std::cref(run));
}

void ExpandedLinear::AddBiasTo(float* y, std::size_t y_stride, std::int32_t tokens,
                               std::int32_t first_column, std::int32_t columns) const {
  for (std::size_t t = 0; t < static_cast<std::size_t>(tokens); ++t) {
    AddBias(linear_->bias, first_column, first_column + columns, y + t * y_stride);
  }
}

void ExpandedLinear::MatMul(const float* x, std::size_t x_stride, std::int32_t tokens, float* y,
                            std::size_t y_stride, ThreadPool& pool) const {
  if (form_ == Form::kBlocks) {
    MatMulBlocks(x, x_stride, tokens, y, y_stride, pool);
    return;
  }
  const bool bf16 = form_ == Form::kBf16;
  const auto in = static_cast<std::size_t>(linear_->in);
  const Tiles tiles(tokens, linear_->out);
  const auto run = [&](std::int64_t task, const ThreadPool::Worker& worker) {
    const Tile tile = tiles.At(task);
    const auto rows = static_cast<std::size_t>(tile.tokens);
    const float* from = x + static_cast<std::size_t>(tile.first_token) * x_stride;
    float* to = y + static_cast<std::size_t>(tile.first_token) * y_stride;
    const std::size_t first_weight = static_cast<std::size_t>(tile.first_column) * in;
    GemmShape shape{.m = tile.tokens, .n = tile.columns, .k = linear_->in, .b_transposed = true};
    shape.lda = static_cast<std::int64_t>(bf16 ? in : x_stride);
    shape.ldb = linear_->in;
    shape.ldc = static_cast<std::int64_t>(y_stride);
    if (bf16) {
      Scratch::Frame frame(worker.scratch);
      std::uint16_t* rounded = frame.Array<std::uint16_t>(rows * in);
      for (std::size_t t = 0; t < rows; ++t) {
        RoundToBf16({from + t * x_stride, in}, {rounded + t * in, in});
      }
      const auto* weights = reinterpret_cast<const std::uint16_t*>(memory_);
      GemmBf16(shape, rounded, weights + first_weight, to + tile.first_column);
    } else {
      const auto* weights = reinterpret_cast<const float*>(memory_);
      GemmF32(shape, from, weights + first_weight, to + tile.first_column);
    }
    AddBiasTo(to, y_stride, tile.tokens, tile.first_column, tile.columns);
  };
  pool.ParallelFor(tiles.count(), std::cref(run));
}

void ExpandedLinear::MatMulBlocks(const float* x, std::size_t x_stride, std::int32_t tokens,
                                  float* y, std::size_t y_stride, ThreadPool& pool) const {
  const PackedWeights weights{memory_, linear_->in, linear_->out,
                              linear_->type == GGML_TYPE_Q5_0 || linear_->type == GGML_TYPE_Q5_1};
  constexpr std::int32_t kSlice = 48;  // tokens whose rounded inputs stay in the core's cache
  const auto run = [&](std::int64_t task, const ThreadPool::Worker& worker) {
    const auto first = static_cast<std::int32_t>(task) * kSlice;
    const std::int32_t count = std::min(kSlice, tokens - first);
    float* to = y + static_cast<std::size_t>(first) * y_stride;
    BlockGemm(weights, x + static_cast<std::size_t>(first) * x_stride, x_stride, count, to,
              y_stride, worker.scratch);
    AddBiasTo(to, y_stride, count, 0, linear_->out);
  };
  pool.ParallelFor((tokens + kSlice - 1) / kSlice, std::cref(run));
}

void ExpandRow(const Linear& linear, std::int32_t row, std::span<float> out) {
  InitGgml();
  Expand(linear, row, out.data());
}

}  // namespace rkv::model
