// A layer of random rows and a decode step over them, for tests of policies without an engine.
#ifndef RKV_TESTS_SUPPORT_POLICY_LAYER_H_
#define RKV_TESTS_SUPPORT_POLICY_LAYER_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kv/head_store.h"
#include "kv/hot_rows.h"
#include "policy/policy.h"
#include "support/random.h"

namespace rkv::test {

inline std::unique_ptr<const policy::Policy> MakePolicy(std::string_view spec) {
  Result<std::unique_ptr<const policy::Policy>> made = policy::MakePolicy(spec);
  EXPECT_TRUE(made) << spec << ": " << (made ? "" : made.error().message());
  return made ? *std::move(made) : nullptr;
}

// One layer of a session: kv_heads with random rows and the policy's states. Prompt() runs what the
// engine runs at the end of a prompt, Step() what it runs for a decoded token.
class PolicyLayer {
 public:
  struct Options {
    policy::TurnShape shape;  // prompt_tokens, max_new_tokens, head_dim, group, kv_heads, layers
    kv::Codec codec = kv::Codec::kF32;
    std::uint64_t seed = 1;
    std::int32_t layer = 0;
    const attention::Backend* backend = &attention::CpuBackend();
  };

  PolicyLayer(std::string_view spec, const Options& options)
      : PolicyLayer(MakePolicy(spec), options) {}
  PolicyLayer(std::unique_ptr<const policy::Policy> policy, const Options& options)
      : policy_(std::move(policy)),
        options_(options),
        rng_(options.seed),
        pool_(kv::HeadStore::BlockBytes(options.shape.head_dim, options.codec)) {
    shape_ = policy_->Plan(options.shape);
    needs_ = policy_->needs(shape_);
    for (std::int32_t h = 0; h < shape_.kv_heads; ++h) {
      heads_.emplace_back(shape_.head_dim, options.codec, pool_, meter_);
      hot_.emplace_back(meter_);
      states_.push_back(NewState(h));
    }
  }

  const policy::Policy& policy() const { return *policy_; }
  const policy::TurnShape& shape() const { return shape_; }
  const policy::Needs& needs() const { return needs_; }
  kv::HeadStore& head(std::size_t h) { return heads_[h]; }
  kv::SlotView slots(std::size_t h) const { return hot_[h].Of(heads_[h].view()); }
  policy::HeadState* state(std::size_t h) { return states_[h].get(); }
  const std::vector<float>& scores(std::size_t h) const { return scores_[h]; }
  const std::vector<float>& query(std::size_t h) const { return queries_[h]; }
  kv::MemoryMeter& meter() { return meter_; }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)); }

  // Appends `tokens` random rows to every head (key_scale makes attention sharper), then scores,
  // evicts and builds. Returns what Evict kept. The sums that Needs asks for are computed plainly.
  std::vector<policy::Rows> Prompt(std::int32_t tokens, float key_scale = 1.0f) {
    AddRows(tokens, key_scale);
    const std::int32_t window = std::min(needs_.window, tokens);
    const std::size_t width = Size(shape_.group) * Size(shape_.head_dim);
    std::vector<std::vector<float>> q;  // of all the prompt's tokens
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      q.push_back(NormalVector(rng_, Size(tokens) * width));
    }
    std::vector<policy::HeadPrefill> heads(heads_.size());
    std::vector<std::vector<float>> all(heads.size()), near(heads.size()), gram(heads.size());
    for (std::size_t h = 0; h < heads.size(); ++h) {
      policy::HeadPrefill& head = heads[h];
      head.kv_head = static_cast<std::int32_t>(h);
      head.view = heads_[h].view();
      head.window = {q[h].data() + Size(tokens - window) * width, width, window, shape_.group,
                     scale()};
      head.state = states_[h].get();
      if (needs_.column_mass) {
        ColumnMass(q[h], tokens, head.view, all[h], near[h]);
        head.column_mass = all[h];
        head.near_mass = near[h];
      }
      if (needs_.query_gram) {
        Gram(q[h], gram[h]);
        head.query_gram = gram[h];
      }
    }
    return Finish(tokens, heads);
  }

  // Appends one random row to every head and its state; queries are random.
  void Append(float key_scale = 1.0f) {
    AddRows(1, key_scale);
    queries_.resize(heads_.size());
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      queries_[h] = NormalVector(rng_, Size(shape_.group) * Size(shape_.head_dim));
      if (states_[h] != nullptr) {
        EXPECT_TRUE(states_[h]->Append(slots(h)).ok());
      }
    }
  }

  policy::HeadDecode StepOf(std::size_t h) {
    policy::HeadDecode in;
    in.shape = &shape_;
    in.layer = options_.layer;
    in.kv_head = static_cast<std::int32_t>(h);
    in.position = position_ - 1;
    in.rows = slots(h);
    in.state = states_[h].get();
    in.query = {queries_[h].data(), shape_.group};
    in.scale = scale();
    in.classes = classes_;
    in.backend = options_.backend;
    in.scratch = &scratch_;
    return in;
  }

  // What the policy reads of head h for the row appended last.
  policy::Rows Select(std::size_t h) {
    policy::Rows read;
    EXPECT_TRUE(policy_->Select(StepOf(h), read).ok());
    return read;
  }

  // Append, Select and, where the policy observes, Observe with the exact softmax over what was
  // read, and dropping of what it gives up. Returns what was read.
  std::vector<policy::Rows> Step(float key_scale = 1.0f) {
    Append(key_scale);
    std::vector<policy::Rows> read;
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      read.push_back(Select(h));
      if (needs_.observes) {
        Observe(h, read.back());
      }
    }
    return read;
  }

  // What Step does after Select.
  void Observe(std::size_t h, const policy::Rows& read) {
    const std::vector<double> logits = Logits(h);
    const std::int32_t count = slots(h).slots;
    std::vector<float> log_sum;
    for (std::int32_t g = 0; g < shape_.group; ++g) {
      const attention::RowList rows = read.Of(g, count);
      double sum = 0;
      for (std::int32_t i = 0; i < rows.count; ++i) {
        sum += std::exp(logits[Size(g) * Size(count) + Size(rows.list ? rows.list[i] : i)]);
      }
      log_sum.push_back(static_cast<float>(std::log(sum)));
    }
    policy::Rows keep;
    EXPECT_TRUE(policy_->Observe(StepOf(h), read, log_sum, keep).ok());
    if (keep.all) {
      return;
    }
    if (!needs_.park) {
      heads_[h].Keep(keep.list);
    } else if (hot_[h].all()) {
      hot_[h].Set(keep.list);
    } else {
      hot_[h].Keep(keep.list);
    }
    if (states_[h] != nullptr) {
      EXPECT_TRUE(states_[h]->Keep(slots(h), keep.list).ok());
    }
  }

  // Logits of the current query on every slot: [group][slots].
  std::vector<double> Logits(std::size_t h) const {
    const kv::SlotView rows = slots(h);
    std::vector<float> key(Size(shape_.head_dim));
    std::vector<double> logits(Size(shape_.group) * Size(rows.slots));
    for (std::int32_t slot = 0; slot < rows.slots; ++slot) {
      kv::DecodeRow(options_.codec, rows.Key(slot), key);
      for (std::size_t g = 0; g < Size(shape_.group); ++g) {
        double dot = 0;
        for (std::size_t x = 0; x < key.size(); ++x) {
          dot += static_cast<double>(key[x]) * queries_[h][g * key.size() + x];
        }
        logits[g * Size(rows.slots) + Size(slot)] = dot * scale();
      }
    }
    return logits;
  }

  std::vector<policy::TokenClass>& classes() { return classes_; }

 private:
  static std::size_t Size(std::int64_t n) { return static_cast<std::size_t>(n); }

  std::unique_ptr<policy::HeadState> NewState(std::int32_t h) {
    return policy_->NewState({.turn = &shape_,
                              .layer = options_.layer,
                              .kv_head = h,
                              .codec = options_.codec,
                              .meter = &meter_});
  }

  void AddRows(std::int32_t tokens, float key_scale) {
    const auto d = Size(shape_.head_dim);
    for (std::size_t h = 0; h < heads_.size(); ++h) {
      const auto first = heads_[h].Extend(tokens, position_);
      ASSERT_TRUE(first);
      for (std::int32_t t = 0; t < tokens; ++t) {
        heads_[h].WriteRow(*first + t, NormalVector(rng_, d, key_scale), NormalVector(rng_, d));
        hot_[h].Add(*first + t);
      }
    }
    position_ += tokens;
    classes_.resize(Size(position_), policy::TokenClass::kWord);
  }

  std::vector<policy::Rows> Finish(std::int32_t tokens, std::vector<policy::HeadPrefill>& heads) {
    policy::LayerPrefill in;
    in.shape = shape_;
    in.layer = options_.layer;
    in.turn_tokens = tokens;
    in.heads = heads;
    in.classes = classes_;
    in.backend = options_.backend;
    in.scratch = &scratch_;
    scores_.assign(heads.size(), {});
    for (std::size_t h = 0; h < heads.size(); ++h) {
      policy_->Score(in, heads[h], scores_[h]);
    }
    for (std::size_t h = 0; h < heads.size(); ++h) {
      heads[h].scores = scores_[h];
    }
    std::vector<policy::Rows> keep(heads.size());
    EXPECT_TRUE(policy_->Evict(in, keep).ok());
    for (std::size_t h = 0; h < heads.size(); ++h) {
      if (!keep[h].all && needs_.park) {
        hot_[h].Set(keep[h].list);
      } else if (needs_.park) {
        hot_[h].SetAll();
      } else if (!keep[h].all) {
        heads_[h].Keep(keep[h].list);
      }
      auto state = NewState(static_cast<std::int32_t>(h));
      if (state != nullptr) {
        EXPECT_TRUE(state
                        ->Build({.rows = slots(h),
                                 .prefill = &heads[h],
                                 .keep = &keep[h],
                                 .spare_rows = shape_.max_new_tokens + 1})
                        .ok());
      }
      states_[h] = std::move(state);
    }
    return keep;
  }

  // Sum over the prompt's queries of the causal softmax, by row, and its part within the band.
  void ColumnMass(const std::vector<float>& q, std::int32_t tokens, const kv::HeadView& view,
                  std::vector<float>& all, std::vector<float>& near) const {
    const auto d = Size(shape_.head_dim);
    all.assign(Size(view.rows), 0.0f);
    near.assign(needs_.band > 0 ? Size(view.rows) : 0, 0.0f);
    std::vector<std::vector<float>> keys(Size(view.rows), std::vector<float>(d));
    for (std::int32_t row = 0; row < view.rows; ++row) {
      kv::DecodeRow(options_.codec, view.Key(row), keys[Size(row)]);
    }
    for (std::int32_t t = 0; t < tokens; ++t) {
      const std::int32_t last = view.rows - tokens + t;
      for (std::size_t g = 0; g < Size(shape_.group); ++g) {
        const float* query = q.data() + (Size(t) * Size(shape_.group) + g) * d;
        std::vector<double> weight(Size(last) + 1);
        double sum = 0;
        for (std::size_t j = 0; j < weight.size(); ++j) {
          weight[j] =
              std::exp(scale() * std::inner_product(keys[j].begin(), keys[j].end(), query, 0.0));
          sum += weight[j];
        }
        for (std::size_t j = 0; j < weight.size(); ++j) {
          all[j] += static_cast<float>(weight[j] / sum);
          if (needs_.band > 0 && last - static_cast<std::int32_t>(j) < needs_.band) {
            near[j] += static_cast<float>(weight[j] / sum);
          }
        }
      }
    }
  }

  void Gram(const std::vector<float>& q, std::vector<float>& gram) const {
    const auto d = Size(shape_.head_dim);
    gram.assign(d * d, 0.0f);
    for (std::size_t at = 0; at < q.size(); at += d) {
      for (std::size_t x = 0; x < d; ++x) {
        for (std::size_t y = 0; y < d; ++y) {
          gram[x * d + y] += q[at + x] * q[at + y];
        }
      }
    }
  }

  std::unique_ptr<const policy::Policy> policy_;
  Options options_;
  Rng rng_;
  policy::TurnShape shape_;
  policy::Needs needs_;
  kv::BlockPool pool_;
  kv::MemoryMeter meter_;
  std::vector<kv::HeadStore> heads_;
  std::vector<kv::HotRows> hot_;
  std::vector<std::unique_ptr<policy::HeadState>> states_;
  std::vector<std::vector<float>> scores_;
  std::vector<std::vector<float>> queries_;  // [kv_head][group * head_dim]
  std::vector<policy::TokenClass> classes_;
  std::int32_t position_ = 0;
  Scratch scratch_;
};

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_POLICY_LAYER_H_
