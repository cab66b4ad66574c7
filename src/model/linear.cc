#include "model/linear.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>

#include "base/check.h"
#include "model/ops.h"
#include "model/packed_dot.h"

namespace rkv::model {
namespace {

// Weight bytes of one task of MatVec: small enough that threads end together, large enough that
// taking a task costs nothing beside it. Tasks never depend on the number of threads.
constexpr std::size_t kTaskBytes = std::size_t{16} << 10;

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
        rounded[t] = RoundInput(BestBlockIsa(), x_ + t * in, in_, frame);
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
    DotPanels(BestBlockIsa(), weights, begin / kPackedRows, (end + kPackedRows - 1) / kPackedRows,
              input.rounded + t, std::min(kPackedTokens, tokens - t),
              job.y + static_cast<std::int64_t>(t) * weights.out,
              static_cast<std::size_t>(weights.out));
  }
}

void AddBias(const std::vector<float>& bias, std::int64_t begin, std::int64_t end, float* y) {
  if (!bias.empty()) {
    AddTo({y + begin, y + end}, {bias.data() + begin, bias.data() + end});
  }
}

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

void ExpandRow(const Linear& linear, std::int32_t row, std::span<float> out) {
  InitGgml();
  Expand(linear, row, out.data());
}

}  // namespace rkv::model
