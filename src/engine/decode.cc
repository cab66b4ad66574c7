#include "engine/decode.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <span>
#include <thread>

#include "base/clock.h"
#include "model/ops.h"

namespace rkv::engine {
namespace {

using attention::GroupQuery;
using attention::PartialSoftmax;
using attention::RowList;

// Rows a task attends to. A function of the row count alone, so that sums are grouped alike for any
// number of threads; small enough that two threads share even 256 rows evenly.
std::int32_t SpanRows(std::int32_t rows) {
  const std::int32_t sixteenth = (rows / 16 + 63) / 64 * 64;
  return std::clamp(sixteenth, 64, 512);
}

// Span `index` of the rows that a head reads; there may turn out to be fewer.
struct SpanTask {
  std::int32_t head;
  std::int32_t index;
};

std::int32_t SpanCount(std::int32_t rows) { return (rows + SpanRows(rows) - 1) / SpanRows(rows); }

// One decoder layer for one token; the state that its steps share.
class DecodeLayer {
 public:
  DecodeLayer(const Runtime& runtime, SessionState& session, DecodeBuffers& buffers)
      : runtime_(runtime),
        params_(runtime.params()),
        session_(session),
        b_(buffers),
        selected_(static_cast<std::size_t>(params_.kv_heads)) {}

  Status Run(std::int32_t layer) {
    const model::LayerWeights& w = runtime_.model->layer(layer);
    LayerCache& cache = session_.layers[static_cast<std::size_t>(layer)];
    {
      const StageTimer timer(&session_.stage_seconds["decode.linear"]);
      model::RmsNorm(b_.x, w.attn_norm, params_.rms_eps, b_.norm);
      MatVec({{&w.q, b_.q.data()}, {&w.k, b_.k.data()}, {&w.v, b_.v.data()}}, b_.norm.data());
    }
    {
      const StageTimer timer(&session_.stage_seconds["decode.append"]);
      if (Status status = Append(cache); !status.ok()) {
        return status;
      }
    }
    if (Status status = ReadRows(layer, cache); !status.ok()) {
      return status;
    }
    const StageTimer timer(&session_.stage_seconds["decode.linear"]);
    MatVec({{&w.o, b_.delta.data()}}, b_.attention.data());
    model::AddTo(b_.x, b_.delta);
    model::RmsNorm(b_.x, w.ffn_norm, params_.rms_eps, b_.norm);
    MatVec({{&w.gate, b_.gate.data()}, {&w.up, b_.up.data()}}, b_.norm.data());
    model::SiluMul(b_.gate, b_.up);
    MatVec({{&w.down, b_.delta.data()}}, b_.gate.data());
    model::AddTo(b_.x, b_.delta);
    return {};
  }

 private:
  void MatVec(std::initializer_list<model::MatVecJob> jobs, const float* x) {
    model::MatVec({jobs.begin(), jobs.size()}, x, 1, runtime_.compute, *runtime_.pool);
  }

  // Rotates q and k and stores the token's row in every head.
  Status Append(LayerCache& cache) {
    const model::Rope& rope = runtime_.model->rope();
    rope.Apply(b_.angles, b_.q.data(), params_.heads, params_.head_dim);
    rope.Apply(b_.angles, b_.k.data(), params_.kv_heads, params_.head_dim);
    const auto d = static_cast<std::size_t>(params_.head_dim);
    for (std::size_t h = 0; h < cache.heads.size(); ++h) {
      const Result<std::int32_t> row = cache.heads[h].Extend(1, session_.position);
      if (!row) {
        return row.error();
      }
      std::byte* place = cache.heads[h].MutableRow(*row);
      runtime_.backend->store_rows(runtime_.codec, params_.head_dim, b_.k.data() + h * d,
                                   b_.v.data() + h * d, d, {&place, 1});
    }
    return {};
  }

  GroupQuery Query(std::size_t head) const {
    const std::size_t width =
        static_cast<std::size_t>(params_.group()) * static_cast<std::size_t>(params_.head_dim);
    return {b_.q.data() + head * width, params_.group()};
  }

  // Selects rows and attends to them. Methods that score rows do both in one parallel region, one
  // head's spans beginning when it has selected: no barrier in between, no thread without work
  // where there are more heads than threads.
  Status ReadRows(std::int32_t layer, LayerCache& cache) {
    const double start = NowSeconds();
    const auto heads = static_cast<std::int64_t>(cache.heads.size());
    const bool scored = session_.needs.chunk_rows > 0;
    for (std::int64_t h = 0; h < heads; ++h) {
      selected_[static_cast<std::size_t>(h)].done.store(false, std::memory_order_relaxed);
      if (!scored) {  // nothing to compute: not worth a task
        SelectHead(layer, cache, static_cast<std::size_t>(h), runtime_.pool->caller_scratch());
      }
    }
    PlanSpans(cache, scored);
    const std::int64_t selects = scored ? heads : 0;
    const auto run = [&](std::int64_t task, const ThreadPool::Worker& worker) {
      if (task < selects) {
        SelectHead(layer, cache, static_cast<std::size_t>(task), worker.scratch);
      } else {
        AttendSpan(cache, static_cast<std::size_t>(task - selects));
      }
    };
    runtime_.pool->ParallelFor(selects + static_cast<std::int64_t>(spans_.size()), std::cref(run));
    for (std::size_t h = 0; h < cache.heads.size(); ++h) {
      if (!b_.select_status[h].ok()) {
        return b_.select_status[h];
      }
      CountRead(b_.read[h], cache.heads[h].rows());
    }
    MergeSpans(cache);
    CountSeconds(NowSeconds() - start, scored);
    return {};
  }

  // Takes the token's row into the head's index and asks the policy what to read.
  void SelectHead(std::int32_t layer, LayerCache& cache, std::size_t h, Scratch& scratch) {
    const double start = NowSeconds();
    b_.read[h].all = true;
    b_.read[h].estimate = 0;
    Status& status = b_.select_status[h];
    status = {};
    if (!cache.indexes.empty()) {
      status = cache.indexes[h].Append(cache.heads[h].view());
    }
    if (status.ok()) {
      policy::HeadDecode in;
      in.shape = session_.shape;
      in.layer = layer;
      in.view = cache.heads[h].view();
      in.index = cache.indexes.empty() ? kv::IndexView{} : cache.indexes[h].view();
      in.query = Query(h);
      in.scale = params_.attention_scale;
      in.backend = runtime_.backend;
      in.scratch = &scratch;
      status = session_.policy->Select(in, b_.read[h]);
    }
    selected_[h].seconds = NowSeconds() - start;
    selected_[h].done.store(true, std::memory_order_release);
  }

  // Whoever runs select tasks has taken them before any span's: waiting cannot lock up. The yield
  // is for a thread whose CPU was taken away in the middle of one.
  void WaitForSelection(std::size_t h) const {
    for (int spins = 0; !selected_[h].done.load(std::memory_order_acquire); ++spins) {
      if (spins > 1000) {
        std::this_thread::yield();
      }
    }
  }

  // The select tasks' share of the region's time is theirs if threads were always busy.
  void CountSeconds(double all, bool scored) {
    double select = 0;
    for (const Selected& head : selected_) {
      select += head.seconds;
    }
    select = scored
                 ? std::min(all, select / std::min<double>(runtime_.pool->threads(),
                                                           static_cast<double>(selected_.size())))
                 : select;
    session_.stage_seconds["decode.select"] += select;
    session_.stage_seconds["decode.attend"] += all - select;
  }

  void CountRead(const policy::Rows& read, std::int32_t rows) {
    session_.reads.estimate += read.estimate;
    session_.reads.rows +=
        read.estimate + (read.all ? rows : static_cast<double>(read.list.size()));
    session_.reads.reads += 1;
    session_.reads.dense += read.all ? 1 : 0;
  }

  static RowList RowsOf(const policy::Rows& read, const kv::HeadStore& head) {
    if (read.all) {
      return {nullptr, head.rows()};
    }
    return {read.list.data(), static_cast<std::int32_t>(read.list.size())};
  }

  // A task for each span of rows: as many as a head that reads all its rows would need.
  void PlanSpans(const LayerCache& cache, bool scored) {
    spans_.clear();
    first_span_.clear();
    for (std::size_t h = 0; h < cache.heads.size(); ++h) {
      first_span_.push_back(spans_.size());
      const std::int32_t rows =
          scored ? cache.heads[h].rows() : RowsOf(b_.read[h], cache.heads[h]).count;
      for (std::int32_t i = 0; i < SpanCount(rows); ++i) {
        spans_.push_back({static_cast<std::int32_t>(h), i});
      }
    }
    b_.partial.resize(std::max(b_.partial.size(), spans_.size() * StateFloats()));
  }

  std::size_t StateFloats() const {
    const auto group = static_cast<std::size_t>(params_.group());
    return group * (static_cast<std::size_t>(params_.head_dim) + 2);
  }

  PartialSoftmax State(std::size_t task) {
    const auto group = static_cast<std::size_t>(params_.group());
    float* acc = b_.partial.data() + task * StateFloats();
    float* max = acc + group * static_cast<std::size_t>(params_.head_dim);
    return {acc, max, max + group};
  }

  void AttendSpan(const LayerCache& cache, std::size_t task) {
    const SpanTask& span = spans_[task];
    const auto h = static_cast<std::size_t>(span.head);
    WaitForSelection(h);
    if (!b_.select_status[h].ok()) {
      return;
    }
    kv::HeadView view = cache.heads[h].view();
    RowList rows = RowsOf(b_.read[h], cache.heads[h]);
    const std::int32_t begin = span.index * SpanRows(rows.count);
    if (begin >= rows.count) {
      return;
    }
    const std::int32_t count = std::min(SpanRows(rows.count), rows.count - begin);
    if (rows.list != nullptr) {
      rows = {rows.list + begin, count};
    } else {  // a range starts at row 0 of a view: shift the view by whole blocks
      view.blocks += begin / kv::kBlockRows;
      view.positions += begin;
      view.rows = count;
      rows = {nullptr, count};
    }
    runtime_.backend->decode_rows(Query(h), view, rows, params_.attention_scale, State(task));
  }

  // Merges the spans of each head in order.
  void MergeSpans(const LayerCache& cache) {
    const auto width =
        static_cast<std::size_t>(params_.group()) * static_cast<std::size_t>(params_.head_dim);
    std::ranges::fill(b_.attention, 0.0f);  // what a head that reads nothing gives
    for (std::size_t h = 0; h < cache.heads.size(); ++h) {
      const std::size_t first = first_span_[h];
      const std::int32_t count = RowsOf(b_.read[h], cache.heads[h]).count;
      if (count == 0) {
        continue;
      }
      for (std::int32_t i = 1; i < SpanCount(count); ++i) {
        attention::MergePartial(State(first + static_cast<std::size_t>(i)), params_.group(),
                                params_.head_dim, State(first));
      }
      attention::FinishPartial(State(first), params_.group(), params_.head_dim,
                               b_.attention.data() + h * width);
    }
  }

  // What SelectHead leaves of a head.
  struct Selected {
    std::atomic<bool> done{false};
    double seconds = 0;
  };

  const Runtime& runtime_;
  const model::HyperParams& params_;
  SessionState& session_;
  DecodeBuffers& b_;
  std::vector<Selected> selected_;  // of each kv_head
  std::vector<SpanTask> spans_;
  std::vector<std::size_t> first_span_;  // of each kv_head
};

static_assert(64 % kv::kBlockRows == 0, "spans of a range must begin at a block");

}  // namespace

void DecodeBuffers::Resize(const model::HyperParams& params) {
  const auto size = [](std::int32_t n) { return static_cast<std::size_t>(n); };
  x.resize(size(params.embd));
  norm.resize(size(params.embd));
  delta.resize(size(params.embd));
  q.resize(size(params.q_width()));
  attention.resize(size(params.q_width()));
  k.resize(size(params.kv_width()));
  v.resize(size(params.kv_width()));
  gate.resize(size(params.ff));
  up.resize(size(params.ff));
  angles.resize(size(params.rope.dims));
  read.resize(size(params.kv_heads));
  select_status.resize(size(params.kv_heads));
}

void ComputeLogits(const Runtime& runtime, const float* x, std::vector<float>& norm,
                   std::vector<float>& logits) {
  const model::HyperParams& params = runtime.params();
  norm.resize(static_cast<std::size_t>(params.embd));
  logits.resize(static_cast<std::size_t>(params.vocab));
  model::RmsNorm({x, norm.size()}, runtime.model->output_norm(), params.rms_eps, norm);
  const model::MatVecJob job{&runtime.model->output(), logits.data()};
  model::MatVec({&job, 1}, norm.data(), 1, runtime.compute, *runtime.pool);
}

Status DecodeToken(const Runtime& runtime, Token token, SessionState& session,
                   DecodeBuffers& buffers) {
  const model::HyperParams& params = runtime.params();
  buffers.Resize(params);
  model::ExpandRow(runtime.model->embedding(), token, buffers.x);
  runtime.model->rope().Angles(session.position, buffers.angles);
  DecodeLayer layer(runtime, session, buffers);
  for (std::int32_t l = 0; l < params.layers; ++l) {
    if (Status status = layer.Run(l); !status.ok()) {
      session.lost = true;
      return status;
    }
  }
  session.position += 1;
  session.tokens.push_back(token);
  const StageTimer timer(&session.stage_seconds["decode.output"]);
  ComputeLogits(runtime, buffers.x.data(), buffers.norm, session.logits);
  return {};
}

}  // namespace rkv::engine
