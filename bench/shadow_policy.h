// ShadowPolicy: lets a method choose rows while the engine reads all of them, and measures how much
// of the true attention the choice would have caught.
#ifndef RKV_BENCH_SHADOW_POLICY_H_
#define RKV_BENCH_SHADOW_POLICY_H_

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kv/hot_rows.h"
#include "policy/policy.h"
#include "support/forwarding_policy.h"

namespace rkv::bench {

// Sums over (layer, kv_head, query head, step).
struct Recall {
  std::atomic<double> mass = 0;
  std::atomic<std::int64_t> reads = 0;
  double mean() const { return reads == 0 ? 1.0 : mass / static_cast<double>(reads.load()); }
};

// The inner method's state and the rows that it would still hold.
class ShadowState final : public policy::HeadState {
 public:
  ShadowState(std::unique_ptr<policy::HeadState> inner, const policy::StateShape& shape,
              const policy::Rows* kept)
      : inner_(std::move(inner)), hot_(*shape.meter), kept_(kept) {}

  policy::HeadState* inner() { return inner_.get(); }
  kv::SlotView Slots(const kv::HeadView& head) const { return hot_.Of(head); }
  std::int32_t rows = 0;  // of the store that are known here

  Status Build(const policy::StateBuild& build) override {
    if (!kept_->all) {
      hot_.Set(kept_->list);
    }
    rows = build.rows.slots;
    policy::StateBuild own = build;
    own.rows = Slots(build.rows.head);
    own.keep = kept_;
    policy::HeadPrefill head;
    if (build.prefill != nullptr) {
      head = *build.prefill;
      head.state = nullptr;
      own.prefill = &head;
    }
    return inner_ == nullptr ? Status() : inner_->Build(own);
  }
  Status Append(const kv::SlotView& all) override {
    for (; rows < all.slots; ++rows) {
      hot_.Add(rows);
    }
    return inner_ == nullptr ? Status() : inner_->Append(Slots(all.head));
  }
  void Truncate(const kv::SlotView& all) override {
    hot_.Truncate(all.slots);
    rows = all.slots;
  }
  Status Keep(const kv::SlotView&, std::span<const std::int32_t>) override { return {}; }
  // What the inner method gives up while decoding.
  Status Drop(const kv::HeadView& head, const std::vector<std::int32_t>& kept) {
    if (hot_.all()) {
      hot_.Set(kept);
    } else {
      hot_.Keep(kept);
    }
    return inner_ == nullptr ? Status() : inner_->Keep(Slots(head), kept);
  }

 private:
  std::unique_ptr<policy::HeadState> inner_;
  kv::HotRows hot_;
  const policy::Rows* kept_;
};

// One object serves one session.
class ShadowPolicy final : public test::ForwardingPolicy {
 public:
  ShadowPolicy(std::unique_ptr<const policy::Policy> inner, Recall* recall)
      : ForwardingPolicy(std::move(inner)), recall_(recall) {}

  policy::Needs needs(const policy::TurnShape& shape) const override {
    policy::Needs needs = inner().needs(shape);
    needs.park = false;
    needs.key_rank = 0;  // keys stay those of the model
    needs.scores_steps = true;
    return needs;
  }
  std::int64_t RowsKept(const policy::TurnShape&, std::int64_t rows) const override { return rows; }

  // A session has one prompt here: no head has a state of a turn before.
  void Score(const policy::LayerPrefill& layer, const policy::HeadPrefill& in,
             std::vector<float>& scores) const override {
    policy::HeadPrefill head = in;
    head.state = nullptr;
    policy::LayerPrefill own = layer;
    own.earlier = layers_;
    inner().Score(own, head, scores);
  }
  Status Evict(const policy::LayerPrefill& in, std::span<policy::Rows> keep) const override {
    std::vector<policy::HeadPrefill> heads(in.heads.begin(), in.heads.end());
    for (policy::HeadPrefill& head : heads) {
      head.state = nullptr;
    }
    policy::LayerPrefill own = in;
    own.heads = heads;
    own.earlier = layers_;  // what the engine knows is that everything stayed
    Status status = inner().Evict(own, keep);
    layers_.emplace_back(keep.begin(), keep.end());
    for (std::size_t h = 0; h < keep.size(); ++h) {
      kept_[{in.layer, static_cast<std::int32_t>(h)}] = keep[h];
      keep[h].Reset();
    }
    return status;
  }
  std::unique_ptr<policy::HeadState> NewState(const policy::StateShape& shape) const override {
    return std::make_unique<ShadowState>(inner().NewState(shape), shape,
                                         &kept_[{shape.layer, shape.kv_head}]);
  }

  Status Select(const policy::HeadDecode& in, policy::Rows& /*read*/) const override {
    auto& state = static_cast<ShadowState&>(*in.state);
    policy::HeadDecode own = in;
    own.rows = state.Slots(in.rows.head);
    own.state = state.inner();
    policy::Rows read;
    if (Status status = inner().Select(own, read); !status.ok()) {
      return status;
    }
    std::vector<float> log_sum(static_cast<std::size_t>(in.query.group));
    Measure(in, own.rows, read, log_sum);
    if (!inner().needs(*in.shape).observes) {
      return {};
    }
    policy::Rows keep;
    Status status = inner().Observe(own, read, log_sum, keep);
    return status.ok() && !keep.all ? state.Drop(in.rows.head, keep.list) : status;
  }
  Status Observe(const policy::HeadDecode&, const policy::Rows&, std::span<const float>,
                 policy::Rows&) const override {
    return {};
  }

 private:
  // Adds the share of the full softmax that lies on what was read; log_sum of the part that was.
  void Measure(const policy::HeadDecode& in, const kv::SlotView& slots, const policy::Rows& read,
               std::vector<float>& log_sum) const {
    const auto rows = static_cast<std::size_t>(in.rows.slots);
    std::vector<float> scores(rows * log_sum.size());
    in.backend->score_rows(in.query, in.rows.head, {nullptr, in.rows.slots}, in.scale,
                           scores.data());
    for (std::size_t g = 0; g < log_sum.size(); ++g) {
      const float* z = scores.data() + g * rows;
      const double top = *std::max_element(z, z + rows);
      double all = 0;
      for (std::size_t j = 0; j < rows; ++j) {
        all += std::exp(z[j] - top);
      }
      double part = 0;
      const attention::RowList list = read.Of(static_cast<std::int32_t>(g), slots.slots);
      for (std::int32_t i = 0; i < list.count; ++i) {
        const std::int32_t row = slots.Row(list.list == nullptr ? i : list.list[i]);
        part += std::exp(z[row] - top);
      }
      log_sum[g] = static_cast<float>(top + std::log(part));
      recall_->mass += part / all;
      recall_->reads += 1;
    }
  }

  Recall* recall_;
  mutable std::map<std::pair<std::int32_t, std::int32_t>, policy::Rows> kept_;
  mutable std::vector<std::vector<policy::Rows>> layers_;  // [layer][kv_head], the same
};

}  // namespace rkv::bench

#endif  // RKV_BENCH_SHADOW_POLICY_H_
