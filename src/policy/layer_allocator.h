// LayerAllocator: gives every layer a budget of its own and lets another evictor keep to it.
#ifndef RKV_POLICY_LAYER_ALLOCATOR_H_
#define RKV_POLICY_LAYER_ALLOCATOR_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "policy/parts.h"

namespace rkv::policy {

// The inner evictor sees its layer's budget as shape.prompt_budget everywhere, while decoding too.
class LayerAllocator : public Evictor {
 public:
  // `sums`: whether the inner evictor may need sums over all queries of the layer that runs; not so
  // where layers are evicted after the last one (Needs::all_layers).
  explicit LayerAllocator(bool sums) : sums_(sums) {}

  // A method's own options come first. Shows `inner` and the options of that evictor.
  void Options(OptionVisitor& options) override;
  Status CheckShape(const TurnShape& shape) const override;
  Needs needs(const TurnShape& shape) const override;
  std::int32_t LeastRows() const override;
  std::int64_t RowsKept(const TurnShape& shape, std::int64_t rows) const override;
  std::int64_t RowsAfter(const TurnShape& shape, std::int64_t kept,
                         std::int64_t more) const override;
  double StateCost(const TurnShape& shape, std::int32_t slots) const override;
  void Score(const LayerPrefill& layer, const HeadPrefill& in,
             std::vector<float>& scores) const override;
  Status Evict(const LayerPrefill& in, std::span<Rows> keep) const override;
  std::unique_ptr<HeadState> NewState(const StateShape& shape) const override;
  std::size_t StateBytes(const TurnShape& shape, std::int64_t rows) const override;
  void Live(const HeadDecode& in, Rows& live) const override;
  Status Observe(const HeadDecode& in, const Rows& read, std::span<const float> log_sum,
                 Rows& keep) const override;

 protected:
  const Evictor& inner() const { return *inner_; }
  // [layers] rows per kv_head, whose sum is layers * shape.prompt_budget. `cosine`: residual
  // cosines of all layers, or empty where they are not known (yet).
  virtual std::vector<std::int32_t> Budgets(const TurnShape& shape,
                                            std::span<const float> cosine) const = 0;

 private:
  static std::unique_ptr<Evictor> MakeInner(std::size_t choice);

  bool sums_;
  std::size_t choice_ = 0;
  std::unique_ptr<Evictor> inner_ = MakeInner(0);
};

// Rounds `shares` down and gives what is missing to `total` to the largest remainders, the lower
// index first. Descending shares stay descending.
// REQUIRES: the shares are not negative and sum up to about `total`.
std::vector<std::int32_t> RoundShares(std::span<const double> shares, std::int64_t total);

}  // namespace rkv::policy

#endif  // RKV_POLICY_LAYER_ALLOCATOR_H_
