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
#include "kv/memory_meter.h"
#include "policy/head_state.h"
#include "rkv/status.h"

namespace rkv::policy {

// Slots of one kv_head (rows it holds, or of a view of them): all, or ascending unique lists.
struct Rows {
  bool all = true;
  std::vector<std::int32_t> list;                // of the whole group; read only when !all
  std::vector<std::vector<std::int32_t>> heads;  // [group] or empty; instead of `list`

  // Evict only: prompt_budget of this layer where an allocator gave it its own, for its state. 0:
  // the shape's.
  std::int32_t budget = 0;
  // Evict only: a number of the method's own for the head's state (which rule FastGen chose).
  std::int32_t rule = 0;

  // Select only. Bytes that choosing took, counted where kernels read them.
  double estimate_bytes = 0;
  // Completion: a query head's output becomes share[g] of the attention over its rows and the rest
  // of mean_value [head_dim] (SparQ). Empty: none.
  std::vector<float> share;
  const float* mean_value = nullptr;

  // All slots again; the memory of the lists stays.
  void Reset();
  // Slots that head g reads of `slots`; null list when all.
  attention::RowList Of(std::int32_t g, std::int32_t slots) const;
};

// What a policy derives its numbers from. Fixed in a session's first turn (specification 2.1 g).
struct TurnShape {
  std::int32_t prompt_tokens = 0;   // P, the whole first prompt
  std::int32_t max_new_tokens = 0;  // m
  std::int32_t head_dim = 0;        // d
  std::int32_t group = 1;           // G
  std::int32_t kv_heads = 1;
  std::int32_t layers = 1;
  std::string_view model =
      {};  // names the model that a head table must be of; outlives the session

  // Filled by Policy::Plan.
  std::int32_t budget = 0;         // t
  std::int32_t prompt_budget = 0;  // rows of the prompt that a kv_head keeps, on average
  std::int32_t capacity = 0;       // rows at the end of the answer, on average
  bool selects = false;            // whether a step will ever read less than what is kept
};

// What the engine must prepare for the policy.
struct Needs {
  std::int32_t window = 0;  // last prompt queries that Score sees; 0 for none
  // Attention that rows get from all prompt queries, and its part within a band of so many rows.
  bool column_mass = false;
  std::int32_t band = 0;
  bool query_gram = false;       // sum of q q^T over the prompt
  bool residual_cosine = false;  // how little a layer's attention turns the residual stream
  bool token_classes = false;    // special and punctuation tokens
  // Evict runs after the last layer, for all layers: their full K/V are held meanwhile.
  bool all_layers = false;
  // Rows that Evict drops stay in the store for later turns: what it keeps is a view.
  bool park = false;
  // After a prompt, keys that ExactKeys does not list are replaced by their projection on so many
  // directions of the layer's keys before RoPE (ShadowKV). 0: no.
  std::int32_t key_rank = 0;
  bool scores_steps = false;  // Select computes something: worth a parallel task
  bool observes = false;      // Observe is to be called
  // The last prompt token: false, it is fed as the first decode step, so that the window ends
  // before it (RocketKV's accuracy script); true, it belongs to the prefill (its SCBench script).
  bool prefill_last_token = false;
  // Whether a later turn fixes the shape anew, with all tokens seen as its prompt. For methods that
  // evict nothing, whose rows outgrow what the first turn planned.
  bool replan = false;
};

enum class TokenClass : std::uint8_t { kWord, kPunctuation, kSpecial };

// One kv_head of a finished layer, before eviction.
struct HeadPrefill {
  std::int32_t kv_head = 0;
  kv::HeadView view;                   // all rows: those held before and this prompt's
  attention::WindowQuery window;       // the last min(Needs::window, tokens of this prompt) queries
  std::span<const float> column_mass;  // [view.rows], Needs::column_mass
  std::span<const float> near_mass;    // [view.rows], of them what comes from within the band
  std::span<const float> query_gram;   // [head_dim][head_dim]
  std::span<const float> scores;       // what Score made of this head; empty in Score itself
  const HeadState* state = nullptr;    // of the turn before; null in the first

  // Rows before the window, and whether there is anything to score.
  std::int32_t prefix() const { return view.rows - window.tokens; }
};

struct LayerPrefill {
  TurnShape shape;
  std::int32_t layer = 0;
  std::int32_t turn_tokens = 0;  // of this prompt
  std::span<const HeadPrefill> heads;
  std::span<const std::vector<Rows>> earlier;  // what Evict kept of the layers before this one
  std::span<const float> residual_cosine;      // [layers], with Needs::all_layers
  // [layers][kv_heads] what Score made of every head, with Needs::all_layers, in Evict.
  std::span<const std::vector<std::vector<float>>> all_scores;
  std::span<const TokenClass> classes;  // by position
  const attention::Backend* backend = nullptr;
  Scratch* scratch = nullptr;
};

// One kv_head at one decode step; the current token's row is already the last slot.
struct HeadDecode {
  const TurnShape* shape = nullptr;
  std::int32_t layer = 0;
  std::int32_t kv_head = 0;
  std::int32_t position = 0;
  kv::SlotView rows;           // what the method works on
  HeadState* state = nullptr;  // of NewState; takes in the token's row before Select
  attention::GroupQuery query;
  float scale = 1.0f;
  std::span<const TokenClass> classes;  // by position
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

  // The shape with what the budget becomes. Everything below gets a planned shape.
  virtual TurnShape Plan(const TurnShape& shape) const { return shape; }
  // Errors: kInvalidArgument when the options do not fit the shape (names option, value, range).
  virtual Status CheckShape(const TurnShape& shape) const = 0;
  virtual Needs needs(const TurnShape& shape) const = 0;
  // Rows of `rows` that one kv_head still holds right after a prompt, on average, and bytes that
  // its state then takes with `more` rows to come: for the memory plan.
  virtual std::int64_t RowsKept(const TurnShape& shape, std::int64_t rows) const = 0;
  virtual std::size_t StateBytes(const TurnShape& shape, kv::Codec codec,
                                 std::int64_t rows) const = 0;
  // The numbers that the method derives for a shape, as name and value pairs.
  virtual std::vector<std::pair<std::string, double>> Explain(const TurnShape& shape) const = 0;

  // State of one (layer, kv_head), or null when the method keeps none.
  virtual std::unique_ptr<HeadState> NewState(const StateShape& shape) const = 0;
  // Once a kv_head and layer of a prompt, in parallel: what Evict needs to know of the head.
  virtual void Score(const LayerPrefill& layer, const HeadPrefill& in,
                     std::vector<float>& scores) const = 0;
  // Once a layer and turn: fills keep[kv_head] (one per head of `in`, given as "all").
  virtual Status Evict(const LayerPrefill& in, std::span<Rows> keep) const = 0;
  // Once a kv_head and prompt, after its state is built, with Needs::key_rank: appends to `exact`,
  // ascending, those of the `slots` slots whose keys stay as they are.
  virtual void ExactKeys(const TurnShape& shape, const HeadState& state, std::int32_t slots,
                         std::vector<std::int32_t>& exact) const = 0;
  // Once a kv_head and step: fills `read` (given as "all", its lists' memory reused).
  virtual Status Select(const HeadDecode& in, Rows& read) const = 0;
  // Once a kv_head and step after attention over `read`, in parallel, where Needs::observes:
  // `log_sum` [group] is the logarithm of the softmax's denominator. Fills `keep` (given as "all")
  // with the slots that stay; the engine drops the others and tells the state by Keep.
  virtual Status Observe(const HeadDecode& in, const Rows& read, std::span<const float> log_sum,
                         Rows& keep) const = 0;
};

// One option of a method, for `rkv policies`.
struct OptionInfo {
  std::string name;
  std::string default_value;  // "auto" when it follows from the budget
  std::string help;           // meaning and allowed range
};

struct PolicyInfo {
  std::string name;
  std::string keeps;   // what stays after the prompt
  std::string reads;   // what a decoded token reads
  std::string state;   // extra memory
  std::string source;  // paper
  std::vector<OptionInfo> options = {};
};

// All methods, in the order in which they are shown.
const std::vector<PolicyInfo>& KnownPolicies();

// Creates the method named by `spec`, e.g. "rocketkv:budget=512,window_size=32", or composed as
// "evict=snapkv,select=hsa,budget=512" from any method that evicts and any that selects.
// `multi_turn`: whether later prompts will follow, which decides what "auto" is.
// Errors: kInvalidArgument for an unknown method or option (with the nearest and all names), a
// value that is no number or out of range (with the range), an option given twice.
Result<std::unique_ptr<const Policy>> MakePolicy(std::string_view spec, bool multi_turn = false);

// The numbers that a method derives for a shape, as name and value pairs, for `--explain` and JSON.
std::vector<std::pair<std::string, double>> ExplainPolicy(const Policy& policy,
                                                          const TurnShape& shape);

}  // namespace rkv::policy

#endif  // RKV_POLICY_POLICY_H_
