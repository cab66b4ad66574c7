#include "model/linear.h"

#include <ggml-cpu.h>
#include <ggml.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <mutex>

#include "base/check.h"
#include "model/ops.h"

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

// The input of a product in one of the types that weights are dotted with.
struct Input {
  ggml_type type;
  const void* data;
};

// x in every type that the jobs need, in one allocation.
class Inputs {
 public:
  Inputs(std::span<const MatVecJob> jobs, const float* x, Compute compute) {
    inputs_.push_back({GGML_TYPE_F32, x});
    if (compute == Compute::kF32) {
      return;
    }
    std::size_t bytes = 0;
    const std::int32_t in = jobs.front().linear->in;
    for (const MatVecJob& job : jobs) {
      const ggml_type type = ggml_get_type_traits_cpu(Type(*job.linear))->vec_dot_type;
      if (Find(type) == nullptr) {
        inputs_.push_back({type, nullptr});
        bytes += ggml_row_size(type, in);
      }
    }
    memory_.resize(bytes);
    std::byte* out = memory_.data();
    for (Input& input : std::span(inputs_).subspan(1)) {
      ggml_get_type_traits_cpu(input.type)->from_float(x, out, in);
      input.data = out;
      out += ggml_row_size(input.type, in);
    }
  }

  const Input* Find(ggml_type type) const {
    const auto found = std::find_if(inputs_.begin(), inputs_.end(),
                                    [type](const Input& input) { return input.type == type; });
    return found == inputs_.end() ? nullptr : &*found;
  }

 private:
  std::vector<Input> inputs_;
  std::vector<std::byte> memory_;
};

// Rows of every task but the last, which is not much shorter.
std::int64_t RowsPerTask(const Linear& linear) {
  const std::size_t bytes = linear.row_bytes * static_cast<std::size_t>(linear.out);
  const auto tasks = static_cast<std::int64_t>(bytes / kTaskBytes + 1);
  return (linear.out + tasks - 1) / tasks;
}

std::int64_t RowTasks(const Linear& linear) {
  return (linear.out + RowsPerTask(linear) - 1) / RowsPerTask(linear);
}

// Rows [begin, end) of one job.
void DotRows(const MatVecJob& job, const Input& input, std::int64_t begin, std::int64_t end) {
  const Linear& linear = *job.linear;
  const ggml_vec_dot_t dot = ggml_get_type_traits_cpu(Type(linear))->vec_dot;
  for (std::int64_t row = begin; row < end; ++row) {
    dot(linear.in, job.y + row, 0, Row(linear, row), 0, input.data, 0, 1);
  }
}

void DotRowsF32(const MatVecJob& job, const float* x, std::int64_t begin, std::int64_t end,
                Scratch& scratch) {
  const Linear& linear = *job.linear;
  const ggml_vec_dot_t dot = ggml_get_type_traits_cpu(GGML_TYPE_F32)->vec_dot;
  Scratch::Frame frame(scratch);
  float* expanded = frame.Array<float>(static_cast<std::size_t>(linear.in));
  for (std::int64_t row = begin; row < end; ++row) {
    Expand(linear, row, expanded);
    dot(linear.in, job.y + row, 0, expanded, 0, x, 0, 1);
  }
}

void AddBias(const std::vector<float>& bias, std::int64_t begin, std::int64_t end, float* y) {
  if (!bias.empty()) {
    AddTo({y + begin, y + end}, {bias.data() + begin, bias.data() + end});
  }
}

}  // namespace

void MatVec(std::span<const MatVecJob> jobs, const float* x, Compute compute, ThreadPool& pool) {
  if (jobs.empty()) {
    return;
  }
  InitGgml();
  const Inputs inputs(jobs, x, compute);
  std::int64_t tasks = 0;
  for (const MatVecJob& job : jobs) {
    Check(job.linear->in == jobs.front().linear->in, "MatVec jobs share their input");
    tasks += RowTasks(*job.linear);
  }
  const auto run = [&](std::int64_t task, const ThreadPool::Worker& worker) {
    const MatVecJob* job = jobs.data();
    for (; task >= RowTasks(*job->linear); ++job) {
      task -= RowTasks(*job->linear);
    }
    const Linear& linear = *job->linear;
    const std::int64_t begin = task * RowsPerTask(linear);
    const std::int64_t end = std::min<std::int64_t>(linear.out, begin + RowsPerTask(linear));
    if (compute == Compute::kF32) {
      DotRowsF32(*job, x, begin, end, worker.scratch);
    } else {
      DotRows(*job, *inputs.Find(ggml_get_type_traits_cpu(Type(linear))->vec_dot_type), begin, end);
    }
    AddBias(linear.bias, begin, end, job->y);
  };
  pool.ParallelFor(tasks, std::cref(run));
}

void ExpandRow(const Linear& linear, std::int32_t row, std::span<float> out) {
  InitGgml();
  Expand(linear, row, out.data());
}

}  // namespace rkv::model
