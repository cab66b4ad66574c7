// Policy: which rows stay after the prompt, and which rows a decoded token reads.
#ifndef RKV_POLICY_POLICY_H_
#define RKV_POLICY_POLICY_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attention/backend.h"
#include "base/scratch.h"
#include "kv/head_view.h"
#include "rkv/status.h"

namespace rkv::policy {

// Row indices of one kv_head: all of them, or an ascending unique list.
struct Rows {
  bool all = true;
  std::vector<std::int32_t> list;  // read only when !all
  double estimate = 0;             // rows' worth of traffic that choosing them took (Select only)
};

// What a policy derives its numbers from. Fixed in a session's first turn (specification 2.1 g).
struct TurnShape {
  std::int32_t prompt_tokens = 0;   // P, the whole first prompt
  std::int32_t max_new_tokens = 0;  // m
  std::int32_t head_dim = 0;        // d
  std::int32_t group = 1;           // G
};

// What the engine must prepare for the policy.
struct Needs {
  std::int32_t window = 0;      // last prompt queries whose attention mass Evict reads; 0 for none
  std::int32_t chunk_rows = 0;  // keep a ChunkIndex of this chunk length; 0 for none
  // The last prompt token: false, it is fed as the first decode step, so that the window ends
  // before it (RocketKV's accuracy script); true, it belongs to the prefill (its SCBench script).
  bool prefill_last_token = false;
  // Whether a later turn fixes the shape anew, with all tokens seen as its prompt. For methods that
  // evict nothing, whose rows outgrow what the first turn planned.
  bool replan = false;
};

// One kv_head of a finished layer, before eviction.
struct HeadPrefill {
  kv::HeadView view;
  // [view.rows - window] attention mass of the window on each earlier row, summed over the group;
  // empty when Needs::window is 0 or the head has no more rows than the window.
  std::span<const float> mass;
};

struct LayerPrefill {
  TurnShape shape;
  std::int32_t layer = 0;
  std::int32_t window =
      0;  // queries that made up the mass: min(Needs::window, tokens of this prompt)
  std::span<const HeadPrefill> heads;
  const attention::Backend* backend = nullptr;
  Scratch* scratch = nullptr;
};

// One kv_head at one decode step; the current token's row is already the last of the view.
struct HeadDecode {
  TurnShape shape;
  std::int32_t layer = 0;
  kv::HeadView view;
  kv::IndexView index;  // empty (chunk_rows 0) when Needs::chunk_rows is 0
  attention::GroupQuery query;
  float scale = 1.0f;
  const attention::Backend* backend = nullptr;
  Scratch* scratch = nullptr;
};

// A method. Const after creation: one object serves all sessions and threads. Owns no memory of the
// cache, no SIMD, no threads.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  // The method string with every option spelled out: parses back to an equal policy.
  virtual std::string spec() const = 0;
  virtual Needs needs(const TurnShape& shape) const {
    (void)shape;
    return {};
  }
  // Errors: kInvalidArgument when the options do not fit the shape (names option, value, range).
  virtual Status CheckShape(const TurnShape& shape) const {
    (void)shape;
    return {};
  }
  // Rows of `rows` that one kv_head still holds right after a prompt, for the memory plan.
  virtual std::int64_t RowsKept(const TurnShape& shape, std::int64_t rows) const {
    (void)shape;
    return rows;
  }
  // The numbers that the method derives for a shape, as name and value pairs.
  virtual std::vector<std::pair<std::string, double>> Explain(const TurnShape& shape) const {
    (void)shape;
    return {};
  }
  // Once a layer and turn: fills keep[kv_head] (one per head of `in`, given as "all").
  virtual Status Evict(const LayerPrefill& in, std::span<Rows> keep) const {
    (void)in, (void)keep;
    return {};
  }
  // Once a kv_head and step: fills `read` (given as "all", its list's memory reused).
  virtual Status Select(const HeadDecode& in, Rows& read) const {
    (void)in, (void)read;
    return {};
  }
};

// One option of a method, for `rkv policies`.
struct OptionInfo {
  std::string name;
  std::string default_value;  // "derived" when it follows from the budget
  std::string help;           // meaning and allowed range
};

struct PolicyInfo {
  std::string name;
  std::string keeps;   // what stays after the prompt
  std::string reads;   // what a decoded token reads
  std::string state;   // extra memory
  std::string source;  // paper
  std::vector<OptionInfo> options;
};

// All methods, in the order in which they are shown.
const std::vector<PolicyInfo>& KnownPolicies();

// Creates the method named by `spec`, e.g. "rocketkv:budget=512,window_size=32".
// Errors: kInvalidArgument for an unknown method or option (with the nearest and all names), a
// value that is no number or out of range (with the range), an option given twice.
Result<std::unique_ptr<const Policy>> MakePolicy(std::string_view spec);

// The numbers that a method derives for a shape, as name and value pairs, for `--explain` and JSON.
std::vector<std::pair<std::string, double>> ExplainPolicy(const Policy& policy,
                                                          const TurnShape& shape);

}  // namespace rkv::policy

#endif  // RKV_POLICY_POLICY_H_
