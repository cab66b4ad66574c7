#include "engine/layer_reads.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <span>
#include <thread>
#include <vector>

#include "base/clock.h"

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

std::int32_t SpanCount(std::int32_t rows) { return (rows + SpanRows(rows) - 1) / SpanRows(rows); }

// The most spans that any number of rows up to `rows` takes. Not that of `rows`: 1024 rows are 16
// spans of 64, 3100 rows 13 of 256.
std::int32_t MostSpans(std::int32_t rows) {
  constexpr std::int32_t kShort = 17;  // of spans shorter than the longest
  return std::max(SpanCount(rows), std::min(kShort, (rows + 63) / 64));
}

// One layer's reads of one token: which rows, and attention over them.
class LayerReads {
 public:
  LayerReads(const Runtime& runtime, SessionState& session, DecodeBuffers& buffers)
      : runtime_(runtime), params_(runtime.params()), session_(session), b_(buffers) {}

  // Selects rows and attends to them. Methods that score rows do both in one parallel region, one
  // head's spans beginning when it has selected: no barrier in between, no thread without work
  // where there are more heads than threads.
  Status ReadRows(std::int32_t layer, LayerCache& cache) {
    const double start = NowSeconds();
    const auto heads = static_cast<std::int64_t>(cache.heads.size());
    const bool scored = session_.needs.scores_steps;
    for (std::int64_t h = 0; h < heads; ++h) {
      b_.selected[static_cast<std::size_t>(h)].done.store(false, std::memory_order_relaxed);
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
    runtime_.pool->ParallelFor(selects + static_cast<std::int64_t>(b_.spans.size()),
                               std::cref(run));
    for (std::size_t h = 0; h < cache.heads.size(); ++h) {
      if (!b_.select_status[h].ok()) {
        return b_.select_status[h];
      }
      CountRead(cache, h);
    }
    MergeSpans(cache);
    CountSeconds(NowSeconds() - start, scored);
    return {};
  }

  // Tells the policy what was attended to, and drops the rows that it gives up.
  Status Observe(std::int32_t layer, LayerCache& cache) {
    const StageTimer timer(&session_.stage_seconds["decode.observe"]);
    const auto group = static_cast<std::size_t>(params_.group());
    std::vector<policy::Rows> keep(cache.heads.size());
    runtime_.pool->ParallelFor(static_cast<std::int64_t>(keep.size()),
                               [&](std::int64_t task, const ThreadPool::Worker& worker) {
                                 const auto h = static_cast<std::size_t>(task);
                                 b_.select_status[h] = session_.policy->Observe(
                                     Step(layer, cache, h, worker.scratch), b_.read[h],
                                     std::span(b_.log_sum).subspan(h * group, group), keep[h]);
                               });
    for (std::size_t h = 0; h < keep.size(); ++h) {
      Status status = b_.select_status[h];
      if (status.ok() && !keep[h].all) {
        status = KeepSlots(cache, h, keep[h].list);
      }
      if (!status.ok()) {
        return status;
      }
    }
    return {};
  }

 private:
  GroupQuery Query(std::size_t head) const {
    const std::size_t width =
        static_cast<std::size_t>(params_.group()) * static_cast<std::size_t>(params_.head_dim);
    return {b_.q.data() + head * width, params_.group()};
  }

  // One head's part in this step, as the policy sees it.
  policy::HeadDecode Step(std::int32_t layer, const LayerCache& cache, std::size_t h,
                          Scratch& scratch) const {
    policy::HeadDecode in;
    in.shape = &session_.shape;
    in.layer = layer;
    in.kv_head = static_cast<std::int32_t>(h);
    in.position = session_.position;
    in.rows = cache.Slots(h);
    in.state = cache.states[h].get();
    in.query = Query(h);
    in.scale = params_.attention_scale;
    in.classes = session_.classes;
    in.backend = runtime_.backend;
    in.scratch = &scratch;
    return in;
  }

  // Takes the token's row into the head's state and asks the policy what to read.
  void SelectHead(std::int32_t layer, LayerCache& cache, std::size_t h, Scratch& scratch) {
    const double start = NowSeconds();
    policy::Rows& read = b_.read[h];
    read.Reset();
    const policy::HeadDecode in = Step(layer, cache, h, scratch);
    Status& status = b_.select_status[h];
    status = in.state == nullptr ? Status() : in.state->Append(in.rows);
    if (status.ok()) {
      status = session_.policy->Select(in, read);
    }
    b_.rows[h].Map(in.rows, read);
    b_.selected[h].seconds = NowSeconds() - start;
    b_.selected[h].done.store(true, std::memory_order_release);
  }

  // Whoever runs select tasks has taken them before any span's: waiting cannot lock up. The yield
  // is for a thread whose CPU was taken away in the middle of one.
  void WaitForSelection(std::size_t h) const {
    for (int spins = 0; !b_.selected[h].done.load(std::memory_order_acquire); ++spins) {
      if (spins > 1000) {
        std::this_thread::yield();
      }
    }
  }

  // The select tasks' share of the region's time is theirs if threads were always busy.
  void CountSeconds(double all, bool scored) {
    double select = 0;
    for (const HeadSelection& head : b_.selected) {
      select += head.seconds;
    }
    select = scored
                 ? std::min(all, select / std::min<double>(runtime_.pool->threads(),
                                                           static_cast<double>(b_.selected.size())))
                 : select;
    session_.stage_seconds["decode.select"] += select;
    session_.stage_seconds["decode.attend"] += all - select;
  }

  void CountRead(const LayerCache& cache, std::size_t h) {
    const policy::Rows& read = b_.read[h];
    const std::int32_t slots = cache.Slots(h).slots;
    // A row is read once for the whole group unless every query head has its own.
    std::int64_t rows = 0;
    for (std::int32_t g = 0; g < (read.heads.empty() ? 1 : params_.group()); ++g) {
      rows += read.Of(g, slots).count;
    }
    const std::size_t mean_bytes =
        read.share.empty() ? 0 : static_cast<std::size_t>(params_.head_dim) * sizeof(float);
    ReadTotals& totals = session_.reads;
    totals.estimate_bytes += read.estimate_bytes;
    totals.bytes +=
        read.estimate_bytes + static_cast<double>(mean_bytes) +
        static_cast<double>(rows) * static_cast<double>(cache.heads[h].view().row_bytes());
    totals.reads += 1;
    totals.dense += read.all ? 1 : 0;
  }

  // A task for each span of rows: as many as a head may need, whatever it selects.
  void PlanSpans(const LayerCache& cache, bool scored) {
    b_.spans.clear();
    b_.first_span.clear();
    for (std::size_t h = 0; h < cache.heads.size(); ++h) {
      b_.first_span.push_back(b_.spans.size());
      const std::int32_t spans =
          scored ? MostSpans(cache.Slots(h).slots) : SpanCount(b_.rows[h].MostRows());
      for (std::int32_t i = 0; i < spans; ++i) {
        b_.spans.push_back({static_cast<std::int32_t>(h), i});
      }
    }
    b_.partial.resize(std::max(b_.partial.size(), b_.spans.size() * StateFloats()));
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
    const SpanTask& span = b_.spans[task];
    const auto h = static_cast<std::size_t>(span.head);
    WaitForSelection(h);
    if (!b_.select_status[h].ok()) {
      return;
    }
    const std::int32_t most = b_.rows[h].MostRows();
    if (span.index * SpanRows(most) >= most) {
      return;
    }
    const PartialSoftmax state = State(task);
    if (b_.read[h].heads.empty()) {
      AttendRows(cache, h, Query(h), SpanOf(b_.rows[h].Of(0), span.index, most), state);
      return;
    }
    const auto d = static_cast<std::size_t>(params_.head_dim);
    for (std::int32_t g = 0; g < params_.group(); ++g) {
      const auto at = static_cast<std::size_t>(g);
      AttendRows(cache, h, {Query(h).q + at * d, 1}, SpanOf(b_.rows[h].Of(g), span.index, most),
                 {state.acc + at * d, state.max + at, state.sum + at});
    }
  }

  // Rows [begin, begin + count) of a list, or of all rows when `list` is null.
  struct Span {
    const std::int32_t* list;
    std::int32_t begin;
    std::int32_t count;
  };

  // Span `index` of `rows`, in steps that `most` rows ask for.
  static Span SpanOf(const RowList& rows, std::int32_t index, std::int32_t most) {
    const std::int32_t begin = std::min(index * SpanRows(most), rows.count);
    return {rows.list, begin, std::min(SpanRows(most), rows.count - begin)};
  }

  void AttendRows(const LayerCache& cache, std::size_t h, const GroupQuery& query, const Span& span,
                  const PartialSoftmax& state) {
    kv::HeadView view = cache.heads[h].view();
    RowList rows = {nullptr, span.count};
    if (span.list != nullptr) {
      rows.list = span.list + span.begin;
    } else {  // a range starts at row 0 of a view: shift the view by whole blocks
      view.blocks += span.begin / kv::kBlockRows;
      view.positions += span.begin;
      view.rows = span.count;
    }
    runtime_.backend->decode_rows(query, view, rows, params_.attention_scale, state);
  }

  // Merges the spans of each head in order; log_sum keeps what Observe needs.
  void MergeSpans(const LayerCache& cache) {
    const auto group = static_cast<std::size_t>(params_.group());
    const auto width = group * static_cast<std::size_t>(params_.head_dim);
    std::ranges::fill(b_.attention, 0.0f);  // what a head that reads nothing gives
    std::ranges::fill(b_.log_sum, -std::numeric_limits<float>::infinity());
    for (std::size_t h = 0; h < cache.heads.size(); ++h) {
      const std::size_t first = b_.first_span[h];
      const std::int32_t count = b_.rows[h].MostRows();
      if (count == 0) {
        continue;
      }
      for (std::int32_t i = 1; i < SpanCount(count); ++i) {
        attention::MergePartial(State(first + static_cast<std::size_t>(i)), params_.group(),
                                params_.head_dim, State(first));
      }
      const PartialSoftmax state = State(first);
      for (std::size_t g = 0; g < group; ++g) {
        b_.log_sum[h * group + g] = state.max[g] + std::log(state.sum[g]);
      }
      float* out = b_.attention.data() + h * width;
      attention::FinishPartial(state, params_.group(), params_.head_dim, out);
      Complete(b_.read[h], out);
    }
  }

  // Mixes the mean value into each head's output where the policy asks for it.
  void Complete(const policy::Rows& read, float* out) const {
    const auto d = static_cast<std::size_t>(params_.head_dim);
    for (std::size_t g = 0; g < read.share.size(); ++g) {
      for (std::size_t x = 0; x < d; ++x) {
        float& number = out[g * d + x];
        number = read.share[g] * number + (1.0f - read.share[g]) * read.mean_value[x];
      }
    }
  }

  Status KeepSlots(LayerCache& cache, std::size_t h, const std::vector<std::int32_t>& kept) {
    session_.rewind_floor = session_.position + 1;
    if (session_.needs.park) {
      if (cache.hot[h].all()) {
        cache.hot[h].Set(kept);
      } else {
        cache.hot[h].Keep(kept);
      }
    } else {
      cache.heads[h].Keep(kept);
    }
    return cache.states[h] == nullptr ? Status() : cache.states[h]->Keep(cache.Slots(h), kept);
  }

  const Runtime& runtime_;
  const model::HyperParams& params_;
  SessionState& session_;
  DecodeBuffers& b_;
};

static_assert(64 % kv::kBlockRows == 0, "spans of a range must begin at a block");

}  // namespace

Status ReadLayer(const Runtime& runtime, std::int32_t layer, SessionState& session,
                 DecodeBuffers& buffers) {
  LayerReads reads(runtime, session, buffers);
  LayerCache& cache = session.layers[static_cast<std::size_t>(layer)];
  Status status = reads.ReadRows(layer, cache);
  return status.ok() && session.needs.observes ? reads.Observe(layer, cache) : status;
}

}  // namespace rkv::engine
