#include "engine/decode.h"

#include <span>

#include "base/clock.h"
#include "engine/layer_reads.h"
#include "model/ops.h"

namespace rkv::engine {
namespace {

// One decoder layer for one token; the state that its steps share.
class DecodeLayer {
 public:
  DecodeLayer(const Runtime& runtime, SessionState& session, DecodeBuffers& buffers)
      : runtime_(runtime), params_(runtime.params()), session_(session), b_(buffers) {}

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
    if (Status status = ReadLayer(runtime_, layer, session_, b_); !status.ok()) {
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
      cache.hot[h].Add(*row);
    }
    return {};
  }

  const Runtime& runtime_;
  const model::HyperParams& params_;
  SessionState& session_;
  DecodeBuffers& b_;
};

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
  rows.resize(size(params.kv_heads));
  select_status.resize(size(params.kv_heads));
  if (selected.size() != select_status.size()) {
    selected = std::vector<HeadSelection>(select_status.size());
  }
  log_sum.resize(size(params.heads));
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
  session.SeeToken(runtime, token);
  DecodeLayer layer(runtime, session, buffers);
  for (std::int32_t l = 0; l < params.layers; ++l) {
    if (Status status = layer.Run(l); !status.ok()) {
      session.lost = true;
      return status;
    }
  }
  session.position += 1;
  const StageTimer timer(&session.stage_seconds["decode.output"]);
  ComputeLogits(runtime, buffers.x.data(), buffers.norm, session.logits);
  return {};
}

}  // namespace rkv::engine
