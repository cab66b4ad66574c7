// Evictor and Selector: the two halves of a method, which any method string can combine.
#ifndef RKV_POLICY_PARTS_H_
#define RKV_POLICY_PARTS_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "policy/option_visitor.h"
#include "policy/policy.h"

namespace rkv::policy {

using Numbers = std::vector<std::pair<std::string, double>>;

// Chooses the rows that stay: after a prompt, and for some methods again after every token.
// Contracts are those of Policy's functions of the same name. Const but for Options.
class Evictor {
 public:
  virtual ~Evictor() = default;
  // Shows every option to `options`, which may change it.
  virtual void Options(OptionVisitor& options) { (void)options; }
  // Reads the files that the options name: once, when they are final.
  virtual Status Load() { return {}; }
  virtual Status CheckShape(const TurnShape& shape) const {
    (void)shape;
    return {};
  }
  virtual Needs needs(const TurnShape& shape) const {
    (void)shape;
    return {};
  }
  // The least shape.prompt_budget that makes sense: the window and one row more.
  virtual std::int32_t LeastRows() const { return 1; }
  // Mean over heads and layers; at most `rows`.
  virtual std::int64_t RowsKept(const TurnShape& shape, std::int64_t rows) const;
  // Rows that a step may read after `more` decoded tokens, of `kept` rows of the prompt; mean over
  // heads and layers. Less than their sum where decoding evicts.
  virtual std::int64_t RowsAfter(const TurnShape& shape, std::int64_t kept,
                                 std::int64_t more) const {
    (void)shape;
    return kept + more;
  }
  // Names and values of what is derived from the shape.
  virtual void Explain(const TurnShape& shape, Numbers& out) const { (void)shape, (void)out; }

  // Default: attention mass of the window on every row before it, summed over the group; empty
  // where there are no more rows than the window. Policy specification 2.1, stage 1, steps 2 and 3.
  virtual void Score(const LayerPrefill& layer, const HeadPrefill& in,
                     std::vector<float>& scores) const;
  // Keeps about in.shape.prompt_budget rows of each head.
  virtual Status Evict(const LayerPrefill& in, std::span<Rows> keep) const = 0;

  // For methods that go on evicting while decoding.
  virtual std::unique_ptr<HeadState> NewState(const StateShape& shape) const {
    (void)shape;
    return nullptr;
  }
  virtual std::size_t StateBytes(const TurnShape& shape, std::int64_t rows) const {
    (void)shape, (void)rows;
    return 0;
  }
  // What a step over `slots` slots reads of the state, in 16-bit rows' worth; Live counts its
  // bytes.
  virtual double StateCost(const TurnShape& shape, std::int32_t slots) const {
    (void)shape, (void)slots;
    return 0;
  }
  // Slots that a step may read (given as "all"): those not dropped yet although they could be, and
  // each query head's own where they differ.
  virtual void Live(const HeadDecode& in, Rows& live) const { (void)in, (void)live; }
  virtual Status Observe(const HeadDecode& in, const Rows& read, std::span<const float> log_sum,
                         Rows& keep) const {
    (void)in, (void)read, (void)log_sum, (void)keep;
    return {};
  }
};

// Traffic of one step in rows' worth of a kv_head.
struct StepCost {
  double estimate = 0;  // to choose
  double rows = 0;      // read then
};

// Chooses the slots that a decoded token reads, of those the evictor left.
class Selector {
 public:
  virtual ~Selector() = default;
  virtual void Options(OptionVisitor& options) { (void)options; }
  virtual Status CheckShape(const TurnShape& shape) const {
    (void)shape;
    return {};
  }
  virtual Needs needs(const TurnShape& shape) const {
    (void)shape;
    return {.scores_steps = true};
  }
  virtual void Explain(const TurnShape& shape, Numbers& out) const { (void)shape, (void)out; }
  // What a step over `slots` slots moves by the method's formula. Half of shape.budget goes into
  // the estimate and half into rows, unless the method estimates nothing.
  virtual StepCost Cost(const TurnShape& shape, std::int32_t slots) const = 0;

  virtual std::unique_ptr<HeadState> NewState(const StateShape& shape) const {
    (void)shape;
    return nullptr;
  }
  virtual std::size_t StateBytes(const TurnShape& shape, kv::Codec codec, std::int64_t rows) const {
    (void)shape, (void)codec, (void)rows;
    return 0;
  }
  // Called only when the dense bypass does not hold; `in.state` is of NewState.
  virtual Status Select(const HeadDecode& in, Rows& read) const = 0;
  // Policy's function of the same name; `state` is of NewState.
  virtual void ExactKeys(const TurnShape& shape, const HeadState& state, std::int32_t slots,
                         std::vector<std::int32_t>& exact) const {
    (void)shape, (void)state, (void)slots, (void)exact;
  }
};

}  // namespace rkv::policy

#endif  // RKV_POLICY_PARTS_H_
