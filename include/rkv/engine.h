// Engine: a model, its threads, and the sessions that use them. The whole public API of
// RocketKV.cpp is engine.h, session.h, options.h and status.h.
#ifndef RKV_ENGINE_H_
#define RKV_ENGINE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rkv/options.h"
#include "rkv/session.h"
#include "rkv/status.h"

namespace rkv {

struct ModelInfo {
  std::string path;
  std::string name;
  std::string architecture;
  std::string weight_types;
  std::uint64_t parameters = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t packed_bytes = 0;  // weights in a layout of this CPU, in memory besides the file
  std::int32_t layers = 0;
  std::int32_t embd = 0;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t ff = 0;
  std::int32_t vocab = 0;
  std::int32_t trained_context = 0;
  std::string rope;                    // "neox, base 1000000", "norm, base 500000, llama3 factors"
  std::size_t kv_bytes_per_token = 0;  // Full-KV, all layers, in the engine's kv type
};

// What a prompt will need, computed before anything is allocated.
struct MemoryPlan {
  std::size_t kv_kept = 0;  // rows after the prompt, at most, with positions
  std::size_t kv_index = 0;
  std::size_t kv_layer = 0;  // one layer's full K/V
  std::size_t scratch = 0;   // hidden states, piece buffers, expanded weights, thread scratch
  std::size_t total() const { return kv_kept + kv_index + kv_layer + scratch; }
};

struct SessionOptions {
  std::string policy = "rocketkv:budget=1024";
  std::int32_t max_new_tokens = 256;  // m of the budget formulas
  // Later prompts will follow: the method "auto" is then one that keeps all rows.
  bool multi_turn = false;
};

// A number for every KV head of a model, for methods that treat heads differently.
struct HeadScores {
  std::string method;
  std::string model;  // architecture, name and sizes
  std::int32_t layers = 0;
  std::int32_t kv_heads = 0;
  std::vector<float> scores;  // [layers][kv_heads]; the higher, the more rows the head needs
  std::string json;           // the same as the file that option `table` of the method reads
};

// Thread-safe: model facts and tokenizer. Prefill and the sessions share one thread pool: one
// thread at a time may call them.
class Engine {
 public:
  virtual ~Engine() = default;

  // Opens a model. Errors: kNotFound, kDataLoss, kUnsupported about the file; kInvalidArgument for
  // option values outside their range or a context above the model's.
  static Result<std::unique_ptr<Engine>> Open(const EngineOptions& options);

  // An engine for a model of this shape with random 4-bit weights in memory, to time sizes that no
  // file is at hand for. It has no tokenizer: text is kUnsupported there. options.model_path must
  // be empty. Errors: kInvalidArgument names the shapes that are known; kResourceExhausted.
  static Result<std::unique_ptr<Engine>> OpenShape(std::string_view shape,
                                                   const EngineOptions& options);

  virtual const ModelInfo& model() const = 0;
  virtual const EngineOptions& options() const = 0;  // as in effect: threads and context filled in

  // Text to ids as the model's file says (BOS included when the model adds it).
  // Errors: kInvalidArgument for text that is not UTF-8 (names the byte offset).
  virtual Result<std::vector<Token>> Tokenize(std::string_view text, bool add_special,
                                              bool parse_special) const = 0;
  // Ids of a conversation in the model's chat template, ending at the start of the answer. Text of
  // the messages never becomes a control token. `chat_template`: empty for the model's own.
  virtual Result<std::vector<Token>> TokenizeChat(std::span<const ChatMessage> messages,
                                                  std::string_view chat_template) const = 0;
  // Ids that continue a conversation whose last answer was generated in the session.
  virtual Result<std::vector<Token>> TokenizeChatTurn(std::span<const ChatMessage> before,
                                                      const ChatMessage& next,
                                                      std::string_view chat_template) const = 0;
  // Bytes of a token; empty for control tokens.
  virtual std::string TokenText(Token token) const = 0;

  // A new, empty session. Errors: those of the method string.
  virtual Result<std::unique_ptr<Session>> NewSession(const SessionOptions& options) = 0;

  // What one session with these options would need for a prompt of `tokens`.
  virtual Result<MemoryPlan> PlanPrompt(const SessionOptions& options,
                                        std::int32_t tokens) const = 0;

  // Appends a prompt to sessions of this engine, computing it once for all of them; each evicts by
  // its own policy. With more than one, all must be empty. Afterwards their logits() are set.
  // Errors: kInvalidArgument for an empty prompt, an id outside the vocabulary, a prompt that does
  // not fit the context (names both numbers); kResourceExhausted when the memory plan does not fit
  // (bytes needed, bytes available, largest context that fits), before anything is allocated;
  // kCancelled when on_progress said so. After an error the sessions are as before, except that one
  // which held rows is lost when it had begun to evict (kCancelled) or when the system ran out of
  // memory in mid-prefill: it then answers every call with kInvalidArgument.
  virtual Status Prefill(std::span<Session* const> sessions, std::span<const Token> prompt,
                         const ProgressCallback& on_progress) = 0;

  // Measures every KV head for a method that takes a head table ("duo"), mean over texts, each
  // computed as a prompt. No texts: documents with pass keys that come with the program.
  // Errors: kInvalidArgument for a method without tables (with the nearest and all names); those
  // of Tokenize and Prefill.
  virtual Result<HeadScores> CalibrateHeads(std::string_view method,
                                            std::span<const std::string> texts,
                                            const ProgressCallback& on_progress) = 0;

  // Fills empty sessions with random rows in the numbers, places and indexes that a prompt of
  // `tokens` would leave, without computing it: for timing decode at depths that would take long to
  // prefill. Only times and bytes mean anything afterwards. The same seed gives the same rows.
  // Errors: as Prefill.
  virtual Status FillRandom(std::span<Session* const> sessions, std::int32_t tokens,
                            std::uint64_t seed) = 0;
};

// Names that OpenShape knows: "smollm2-135m", "qwen2.5-0.5b", "llama-8b".
std::vector<std::string> KnownShapes();

// One method that --kv understands, for listings.
struct PolicyOption {
  std::string name;
  std::string default_value;
  std::string help;
};
struct PolicyDescription {
  std::string name;
  std::string keeps;
  std::string reads;
  std::string state;
  std::string source;
  std::vector<PolicyOption> options;
};
std::vector<PolicyDescription> DescribePolicies();

// Checks a method string without a model. Errors: kInvalidArgument, as NewSession.
Status CheckPolicy(std::string_view policy);

// The shape that a method derives its numbers for. The defaults are those of an 8B model.
struct ExplainShape {
  std::int32_t context = 32768;       // S, prompt and answer, [2, 2^30] tokens
  std::int32_t max_new_tokens = 256;  // m, of them the answer, [1, context - 1]
  std::int32_t layers = 32;           // these four: [1, 65536]
  std::int32_t kv_heads = 8;
  std::int32_t group = 4;  // heads that share a kv_head
  std::int32_t head_dim = 128;
  KvType kv_type = KvType::kAuto;  // kAuto: f16
};

// What a method comes to. Rows are those of one kv_head, bytes of all layers and kv_heads. Held is
// meant at the end of the answer, read is the mean over its steps, as in SessionStats.
struct PolicyNumbers {
  std::string policy;                                   // every option spelled out
  std::vector<std::pair<std::string, double>> numbers;  // as the method derives them, in its order
  double rows_held = 0;
  double rows_read = 0;      // rows' worth of traffic of a step, the estimate included
  double rows_estimate = 0;  // the part of rows_read that reads the index
  double bytes_held = 0;     // of rows_held, without the room in blocks that they leave
  double bytes_index = 0;    // held besides
  double bytes_read = 0;     // by a step
};

// Derives them without a model; for "full" they are what the others are compared with. Cheap.
// Errors: kInvalidArgument for a field of the shape outside its range (names it, the value and the
// range), for a method string as CheckPolicy, for options that do not fit the shape.
Result<PolicyNumbers> ExplainPolicy(std::string_view policy, const ExplainShape& shape);

// "0.1.0".
std::string_view Version();

}  // namespace rkv

#endif  // RKV_ENGINE_H_
