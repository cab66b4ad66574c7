#include "engine/prefill.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "base/clock.h"
#include "engine/decode.h"
#include "engine/memory_plan.h"
#include "model/ops.h"

namespace rkv::engine {
namespace {

std::size_t Size(std::int64_t n) { return static_cast<std::size_t>(n); }

// Tokens that one attention task takes: enough query rows that packing the keys for them is a few
// per cent of the work, few enough for the tasks to balance and for their sums to stay in the L2
// cache.
std::int32_t TileTokens(std::int32_t group) {
  constexpr std::int32_t kQueryRows = 1152;
  return std::clamp(kQueryRows / group / 16 * 16, 16, 256);
}

// Bytes of an expanded matrix in the layer's buffer, each on a cache line of its own.
std::size_t ExpandedBytes(const model::Linear& linear, Compute compute) {
  return (model::ExpandedLinear::Bytes(linear, compute) + 63) / 64 * 64;
}

}  // namespace

// One layer's matrices, expanded for GEMM; only those that the layer will use.
struct Prefill::Weights {
  const model::LayerWeights& layer;
  Range queries;  // tokens whose queries are needed
  Range outputs;  // tokens whose output is needed
  model::ExpandedLinear k, v;
  std::optional<model::ExpandedLinear> q, o, gate, up, down;
};

Prefill::Prefill(const Runtime& runtime, std::span<SessionState* const> sessions,
                 std::span<const Token> tokens, bool want_logits)
    : runtime_(runtime),
      params_(runtime.params()),
      sessions_(sessions),
      tokens_(tokens),
      want_logits_(want_logits),
      count_(static_cast<std::int32_t>(tokens.size())),
      base_(sessions[0]->position),
      sums_(runtime, sessions),
      kept_(sessions.size()),
      deferred_(sessions.size()) {
  for (const SessionState* session : sessions_) {
    window_ = std::max(window_, std::min(session->needs.window, count_));
  }
  for (const LayerCache& layer : primary().layers) {
    for (const kv::HeadStore& head : layer.heads) {
      held_.push_back(head.rows());
    }
  }
}

Status Prefill::Run(const ProgressCallback& on_progress) {
  Status status = Allocate();
  if (status.ok()) {
    for (SessionState* session : sessions_) {
      for (const Token token : tokens_) {
        session->SeeToken(runtime_, token);
      }
    }
    Embed();
    status = RunLayers(on_progress);
  }
  if (status.ok()) {
    status = EvictDeferred();
  }
  if (!status.ok()) {
    RollBack();
    return status;
  }
  for (SessionState* session : sessions_) {
    session->pool.Trim();
    session->position += count_;
    for (const auto& [name, seconds] : stages_) {
      session->stage_seconds[name] += seconds;
    }
  }
  if (want_logits_) {
    std::vector<float> norm;
    ComputeLogits(runtime_, Hidden(count_ - 1), norm, primary().logits);
    for (SessionState* session : sessions_.subspan(1)) {
      session->logits = primary().logits;
    }
  }
  return {};
}

Status Prefill::Allocate() {
  const std::int32_t piece = std::min(runtime_.piece_tokens, count_);
  const struct {
    Buffer* buffer;
    std::int64_t rows;
    std::int64_t width;
  } wanted[] = {{&hidden_, count_, params_.embd},
                {&angles_, count_, params_.rope.dims},
                {&norm_, piece, params_.embd},
                {&delta_, piece, params_.embd},
                {&q_, piece, params_.q_width()},
                {&attention_, piece, params_.q_width()},
                {&k_, piece, params_.kv_width()},
                {&v_, piece, params_.kv_width()},
                {&gate_, piece, params_.ff},
                {&up_, piece, params_.ff},
                {&window_q_, window_, params_.q_width()}};
  for (const auto& want : wanted) {
    Result<Buffer> buffer = Buffer::Allocate(Size(want.rows * want.width) * sizeof(float));
    if (!buffer) {
      return buffer.error();
    }
    *want.buffer = std::move(*buffer);
  }
  Result<Buffer> rounded = Buffer::Allocate(RoundedInputBytes(params_, piece));
  if (!rounded) {
    return rounded.error();
  }
  rounded_ = std::move(*rounded);
  return {};
}

float* Prefill::Hidden(std::int32_t token) {
  return hidden_.as<float>() + Size(token) * Size(params_.embd);
}

float* Prefill::Piece(Buffer& buffer, std::int32_t width, Range piece, std::int32_t token) {
  return buffer.as<float>() + Size(token - piece.begin) * Size(width);
}

LayerCache& Prefill::Cache(SessionState& session) const { return session.layers[Size(layer_)]; }

template <class Fn>
void Prefill::ForTokens(Range range, const Fn& fn) {
  constexpr std::int32_t kBlock = 32;
  const std::int64_t blocks = (range.size() + kBlock - 1) / kBlock;
  runtime_.pool->ParallelFor(blocks, [&](std::int64_t block, const ThreadPool::Worker&) {
    const auto begin = static_cast<std::int32_t>(range.begin + block * kBlock);
    for (std::int32_t t = begin; t < std::min(begin + kBlock, range.end); ++t) {
      fn(t);
    }
  });
}

void Prefill::Embed() {
  const StageTimer timer(Stage("prefill.other"));
  ForTokens({0, count_}, [&](std::int32_t t) {
    model::ExpandRow(runtime_.model->embedding(), tokens_[Size(t)],
                     {Hidden(t), Size(params_.embd)});
    const std::size_t dims = Size(params_.rope.dims);
    runtime_.model->rope().Angles(base_ + t, {angles_.as<float>() + Size(t) * dims, dims});
  });
}

Status Prefill::RunLayers(const ProgressCallback& on_progress) {
  for (layer_ = 0; layer_ < params_.layers; ++layer_) {
    const bool last = layer_ + 1 == params_.layers;
    const bool few = last && !sums_.needs_all_outputs();
    const Range outputs = {few ? (want_logits_ ? count_ - 1 : count_) : 0, count_};
    const Range queries = {
        sums_.needs_all_queries() ? 0 : std::min(outputs.begin, count_ - window_), count_};
    sums_.BeginLayer(Cache(primary()).heads, count_);
    if (Status status = ReserveExpanded(); !status.ok()) {
      return status;
    }
    Status status = RunPieces(ExpandWeights(queries, outputs), on_progress);
    if (status.ok()) {
      sums_.EndLayer();
      status = EndLayer();
    }
    if (!status.ok()) {
      return status;
    }
  }
  return {};
}

Status Prefill::ReserveExpanded() {
  const model::LayerWeights& w = runtime_.model->layer(layer_);
  std::size_t bytes = 0;
  for (const model::Linear* linear : {&w.q, &w.k, &w.v, &w.o, &w.gate, &w.up, &w.down}) {
    bytes += ExpandedBytes(*linear, runtime_.compute);
  }
  if (expanded_.size() >= bytes) {
    return {};
  }
  expanded_ = Buffer();
  Result<Buffer> buffer = Buffer::Allocate(bytes);
  if (!buffer) {
    return buffer.error();
  }
  expanded_ = std::move(*buffer);
  return {};
}

Prefill::Weights Prefill::ExpandWeights(Range queries, Range outputs) {
  const StageTimer timer(Stage("prefill.expand"));
  const model::LayerWeights& w = runtime_.model->layer(layer_);
  std::byte* place = expanded_.data();
  const auto expand = [&](const model::Linear& linear) {
    std::byte* memory = place;
    place += ExpandedBytes(linear, runtime_.compute);
    return model::ExpandedLinear(linear, runtime_.compute, memory, *runtime_.pool);
  };
  Weights weights{w, queries, outputs, expand(w.k), expand(w.v), {}, {}, {}, {}, {}};
  if (queries.size() > 0) {
    weights.q.emplace(expand(w.q));
  }
  if (outputs.size() > 0) {
    weights.o.emplace(expand(w.o));
    weights.gate.emplace(expand(w.gate));
    weights.up.emplace(expand(w.up));
    weights.down.emplace(expand(w.down));
  }
  return weights;
}

Status Prefill::RunPieces(const Weights& weights, const ProgressCallback& on_progress) {
  const auto go_on = [&](std::int32_t done) {
    return !on_progress || on_progress({layer_, params_.layers, done, count_});
  };
  const auto cancelled = [] { return Status(Code::kCancelled, "the prompt was cancelled"); };
  for (std::int32_t begin = 0; begin < count_; begin += runtime_.piece_tokens) {
    const Range piece = {begin, std::min(begin + runtime_.piece_tokens, count_)};
    const Range queries = {std::max(piece.begin, weights.queries.begin), piece.end};
    const Range outputs = {std::max(piece.begin, weights.outputs.begin), piece.end};
    if (!go_on(piece.begin)) {
      return cancelled();
    }
    const bool all_queries = queries.size() == piece.size();
    if (Status status = StoreKeysValues(weights, piece, all_queries); !status.ok()) {
      return status;
    }
    if (queries.size() > 0) {
      if (!all_queries) {
        ProjectQueries(weights, piece, queries);
      }
      RotateQueries(piece, queries);
      AddQueries(piece, queries);
    }
    if (outputs.size() > 0) {
      Attend(piece, outputs);
      if (!go_on(piece.begin)) {
        return cancelled();
      }
      FinishPiece(weights, piece, outputs);
    }
  }
  return go_on(count_) ? Status() : cancelled();
}

// Keys, values and stored rows of a piece. The normed input stays in norm_ for the queries; where
// all of them are needed, they are projected here too.
Status Prefill::StoreKeysValues(const Weights& weights, Range piece, bool with_queries) {
  const StageTimer timer(Stage("prefill.linear"));
  const std::size_t embd = Size(params_.embd);
  const std::size_t width = Size(params_.kv_width());
  float* norm = norm_.as<float>();
  const auto make = [&](std::int32_t t) {
    model::RmsNorm({Hidden(piece.begin + t), embd}, weights.layer.attn_norm, params_.rms_eps,
                   {norm + Size(t) * embd, embd});
  };
  std::vector<model::MatMulJob> jobs = {{&weights.k, k_.as<float>(), width},
                                        {&weights.v, v_.as<float>(), width}};
  if (with_queries) {
    jobs.push_back({&*weights.q, q_.as<float>(), Size(params_.q_width())});
  }
  MatMul(jobs, {norm, embd, piece.size(), make});
  std::vector<std::int32_t> first;
  for (kv::HeadStore& head : Cache(primary()).heads) {
    const Result<std::int32_t> row = head.Extend(piece.size(), base_ + piece.begin);
    if (!row) {
      return row.error();
    }
    first.push_back(*row);
  }
  const std::size_t dims = Size(params_.rope.dims);
  const std::size_t d = Size(params_.head_dim);
  ForTokens(piece, [&](std::int32_t t) {
    float* k = Piece(k_, params_.kv_width(), piece, t);
    const float* v = Piece(v_, params_.kv_width(), piece, t);
    runtime_.model->rope().Apply({angles_.as<float>() + Size(t) * dims, dims}, k, params_.kv_heads,
                                 params_.head_dim);
    for (std::size_t h = 0; h < first.size(); ++h) {
      std::byte* row = Cache(primary()).heads[h].MutableRow(first[h] + t - piece.begin);
      runtime_.backend->store_rows(runtime_.codec, params_.head_dim, k + h * d, v + h * d, d,
                                   {&row, 1});
    }
  });
  return {};
}

void Prefill::MatMul(std::span<const model::MatMulJob> jobs, const model::MatMulInput& input) {
  model::MatMul(jobs, input, rounded_.data(), *runtime_.pool);
}

void Prefill::ProjectQueries(const Weights& weights, Range piece, Range queries) {
  const StageTimer timer(Stage("prefill.linear"));
  const model::MatMulJob job{&*weights.q, Piece(q_, params_.q_width(), piece, queries.begin),
                             Size(params_.q_width())};
  MatMul(
      {&job, 1},
      {Piece(norm_, params_.embd, piece, queries.begin), Size(params_.embd), queries.size(), {}});
}

void Prefill::RotateQueries(Range piece, Range queries) {
  const StageTimer timer(Stage("prefill.linear"));
  const std::size_t width = Size(params_.q_width());
  const std::size_t dims = Size(params_.rope.dims);
  const std::int32_t window_begin = count_ - window_;
  ForTokens(queries, [&](std::int32_t t) {
    float* q = Piece(q_, params_.q_width(), piece, t);
    runtime_.model->rope().Apply({angles_.as<float>() + Size(t) * dims, dims}, q, params_.heads,
                                 params_.head_dim);
    if (t >= window_begin) {
      std::memcpy(window_q_.as<float>() + Size(t - window_begin) * width, q, width * sizeof(float));
    }
  });
}

void Prefill::AddQueries(Range piece, Range queries) {
  if (!sums_.needs_all_queries()) {
    return;
  }
  const StageTimer timer(Stage("prefill.sums"));
  attention::PrefillTile all;
  all.q = Piece(q_, params_.q_width(), piece, queries.begin);
  all.q_stride = Size(params_.q_width());
  all.tokens = queries.size();
  all.group = params_.group();
  all.scale = params_.attention_scale;
  sums_.AddQueries(all, Cache(primary()).heads);
}

void Prefill::Attend(Range piece, Range outputs) {
  const StageTimer timer(Stage("prefill.attend"));
  const std::int32_t tile = TileTokens(params_.group());
  const std::int64_t tiles = (outputs.size() + tile - 1) / tile;
  const std::size_t group_width = Size(params_.group()) * Size(params_.head_dim);
  const auto attend = [&](std::int64_t task, const ThreadPool::Worker& worker) {
    // Long rows first: the tasks that remain at the end are the short ones.
    const std::int64_t index = tiles - 1 - task / params_.kv_heads;
    const auto h = Size(task % params_.kv_heads);
    const auto begin = static_cast<std::int32_t>(outputs.begin + index * tile);
    attention::PrefillTile job;
    job.q = Piece(q_, params_.q_width(), piece, begin) + h * group_width;
    job.q_stride = Size(params_.q_width());
    job.tokens = std::min(tile, outputs.end - begin);
    job.group = params_.group();
    job.first_row = held_[Size(layer_) * Size(params_.kv_heads) + h] + begin;
    job.scale = params_.attention_scale;
    job.out = Piece(attention_, params_.q_width(), piece, begin) + h * group_width;
    job.out_stride = job.q_stride;
    runtime_.backend->prefill_tile(job, Cache(primary()).heads[h].view(), worker.scratch);
  };
  runtime_.pool->ParallelFor(tiles * params_.kv_heads, attend);
}

// Output projection and feed-forward network of the tokens whose output is needed.
void Prefill::FinishPiece(const Weights& weights, Range piece, Range outputs) {
  const StageTimer timer(Stage("prefill.linear"));
  const std::size_t embd = Size(params_.embd);
  const std::size_t ff = Size(params_.ff);
  float* delta = Piece(delta_, params_.embd, piece, outputs.begin);
  float* norm = Piece(norm_, params_.embd, piece, outputs.begin);
  float* gate = Piece(gate_, params_.ff, piece, outputs.begin);
  float* up = Piece(up_, params_.ff, piece, outputs.begin);
  const model::MatMulJob o{&*weights.o, delta, embd};
  const std::size_t q_width = Size(params_.q_width());
  MatMul({&o, 1},
         {Piece(attention_, params_.q_width(), piece, outputs.begin), q_width, outputs.size(), {}});
  const model::MatMulJob gate_up[] = {{&*weights.gate, gate, ff}, {&*weights.up, up, ff}};
  MatMul(gate_up, {norm, embd, outputs.size(), [&](std::int32_t t) {
                     const std::span<float> hidden = {Hidden(outputs.begin + t), embd};
                     if (sums_.needs_all_outputs()) {
                       sums_.AddResidual(outputs.begin + t, hidden, {delta + Size(t) * embd, embd});
                     }
                     model::AddTo(hidden, {delta + Size(t) * embd, embd});
                     model::RmsNorm(hidden, weights.layer.ffn_norm, params_.rms_eps,
                                    {norm + Size(t) * embd, embd});
                   }});
  const model::MatMulJob down{&*weights.down, delta, embd};
  MatMul({&down, 1}, {gate, ff, outputs.size(), [&](std::int32_t t) {
                        model::SiluMul({gate + Size(t) * ff, ff}, {up + Size(t) * ff, ff});
                      }});
  ForTokens(outputs, [&](std::int32_t t) {
    model::AddTo({Hidden(t), embd}, {delta + Size(t - outputs.begin) * embd, embd});
  });
}

}  // namespace rkv::engine
