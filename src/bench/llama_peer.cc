#include "bench/llama_peer.h"

#include <fmt/format.h>
#include <llama.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/clock.h"

namespace rkv::bench {
namespace {

struct FreeModel {
  void operator()(llama_model* p) const { llama_model_free(p); }
};
struct FreeContext {
  void operator()(llama_context* p) const { llama_free(p); }
};
using ModelPtr = std::unique_ptr<llama_model, FreeModel>;
using ContextPtr = std::unique_ptr<llama_context, FreeContext>;

struct Variant {
  std::string_view name;
  llama_flash_attn_type flash;
  ggml_type kv;
};
constexpr std::array<Variant, 3> kVariants = {{
    {"fa0", LLAMA_FLASH_ATTN_TYPE_DISABLED, GGML_TYPE_F16},
    {"fa1", LLAMA_FLASH_ATTN_TYPE_ENABLED, GGML_TYPE_F16},
    {"fa1-q8_0", LLAMA_FLASH_ATTN_TYPE_ENABLED, GGML_TYPE_Q8_0},
}};
constexpr std::string_view kDefault = "default";

// libllama has one log callback for the process: this collects or drops what it says.
class LogCapture {
 public:
  LogCapture() { llama_log_set(Append, this); }
  ~LogCapture() { llama_log_set(Drop, nullptr); }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  const std::string& text() const { return text_; }

 private:
  static void Append(ggml_log_level /*level*/, const char* text, void* self) {
    static_cast<LogCapture*>(self)->text_ += text;
  }
  static void Drop(ggml_log_level /*level*/, const char* /*text*/, void* /*data*/) {}
  std::string text_;
};

llama_context_params Params(const PeerOptions& options, llama_flash_attn_type flash, ggml_type kv) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<std::uint32_t>(options.context);
  params.n_threads = options.threads;
  params.n_threads_batch = options.threads;
  params.flash_attn_type = flash;
  params.type_k = kv;
  params.type_v = kv;
  return params;
}

// Which variant flash attention AUTO becomes, empty when it is not told: libllama only logs it.
std::string_view ResolveDefault(llama_model* model, PeerOptions options) {
  constexpr std::int32_t kSmallest = 256;
  constexpr std::string_view kSays = "Flash Attention ";
  options.context = kSmallest;
  const LogCapture log;
  const ContextPtr context(
      llama_init_from_model(model, Params(options, LLAMA_FLASH_ATTN_TYPE_AUTO, GGML_TYPE_F16)));
  const std::size_t line = log.text().find(kSays);
  if (line == std::string::npos) {
    return {};
  }
  const std::string_view said = std::string_view(log.text()).substr(line + kSays.size());
  return said.starts_with("enabled") ? "fa1" : said.starts_with("disabled") ? "fa0" : "";
}

// One context: a setting with its own cache.
struct Lane {
  Variant variant;
  ContextPtr context;
  std::int32_t filled = 0;  // tokens of the prompt in the cache, from the first on
};

class LlamaPeer : public Racer {
 public:
  LlamaPeer(ModelPtr model, const PeerOptions& options, const TokenFeed& feed, StopCheck stop)
      : model_(std::move(model)), options_(options), feed_(feed), stop_(std::move(stop)) {}

  Status AddLane(const Variant& variant, bool is_default) {
    ContextPtr context(
        llama_init_from_model(model_.get(), Params(options_, variant.flash, variant.kv)));
    if (context == nullptr) {
      return {Code::kResourceExhausted,
              fmt::format("llama.cpp {}: no context of {} tokens", variant.name, options_.context)};
    }
    llama_set_abort_callback(
        context.get(), [](void* stop) { return (*static_cast<StopCheck*>(stop))(); }, &stop_);
    lanes_.push_back({variant, std::move(context)});
    settings_.push_back({.engine = "llama.cpp",
                         .name = std::string(variant.name),
                         .kv = variant.kv == GGML_TYPE_F16 ? "f16" : "q8_0",
                         .peer = true,
                         .is_default = is_default,
                         .weight_bytes = options_.weight_bytes});
    return {};
  }

  std::span<const Setting> settings() const override { return settings_; }
  std::string version() const override {
    return fmt::format("llama.cpp {}, extra buffer types off; {}", llama_version(),
                       llama_print_system_info());
  }

  Status Fill(const Start& start) override {
    depth_ = start.depth;
    for (Lane& lane : lanes_) {
      Forget(lane, std::min(lane.filled, depth_));
      const Status status = Feed(lane, feed_.prompt(lane.filled, depth_ - lane.filled));
      if (!status.ok()) {
        return status;
      }
      lane.filled = depth_;
    }
    return {};
  }

  Result<Sample> TimePrompt(std::size_t setting, std::int32_t tokens) override {
    Lane& lane = lanes_[setting];
    const double start = NowSeconds();
    const Status status = Feed(lane, feed_.prompt(depth_, tokens));
    const double seconds = NowSeconds() - start;
    Forget(lane, depth_);
    return status.ok() ? Result<Sample>(Sample{seconds, 0, {}}) : status;
  }

  Result<Sample> TimeDecode(std::size_t setting, std::int32_t tokens) override {
    Lane& lane = lanes_[setting];
    const double start = NowSeconds();
    for (std::int32_t step = 0; step < tokens; ++step) {
      const Token token = feed_.decoded(step);
      const Status status = Feed(lane, {&token, 1});
      if (!status.ok()) {
        return status;
      }
    }
    const double seconds = NowSeconds() - start;
    Forget(lane, depth_);
    const double rows = depth_ + 0.5 * (tokens + 1);
    return Sample{seconds, rows * RowBytes(lane.variant.kv), {}};
  }

 private:
  double RowBytes(ggml_type type) const {
    return options_.kv_numbers_per_token * static_cast<double>(ggml_type_size(type)) /
           static_cast<double>(ggml_blck_size(type));
  }

  // Forgets everything behind `depth`. A full cache can always do that.
  static void Forget(Lane& lane, std::int32_t depth) {
    llama_memory_seq_rm(llama_get_memory(lane.context.get()), 0, depth, -1);
    lane.filled = std::min(lane.filled, depth);
  }

  // In batches of libllama's default size; waits for the last one's result.
  Status Feed(Lane& lane, std::span<const Token> tokens) const {
    const std::size_t batch = llama_n_batch(lane.context.get());
    for (std::size_t i = 0; i < tokens.size(); i += batch) {
      std::vector<llama_token> part(
          tokens.begin() + static_cast<std::ptrdiff_t>(i),
          tokens.begin() + static_cast<std::ptrdiff_t>(std::min(i + batch, tokens.size())));
      const int code =
          llama_decode(lane.context.get(),
                       llama_batch_get_one(part.data(), static_cast<std::int32_t>(part.size())));
      if (stop_()) {
        return {Code::kCancelled, "interrupted"};
      }
      if (code != 0) {
        return {Code::kInternal,
                fmt::format("llama.cpp {}: llama_decode failed ({})", lane.variant.name, code)};
      }
    }
    llama_synchronize(lane.context.get());
    return {};
  }

  ModelPtr model_;
  PeerOptions options_;
  const TokenFeed& feed_;
  StopCheck stop_;
  std::vector<Lane> lanes_;
  std::vector<Setting> settings_;
  std::int32_t depth_ = 0;
};

bool Wanted(const PeerOptions& options, std::string_view name) {
  return options.settings.empty() ||
         std::ranges::find(options.settings, name) != options.settings.end();
}

}  // namespace

std::vector<std::string> LlamaPeerSettings() {
  std::vector<std::string> names = {std::string(kDefault)};
  for (const Variant& variant : kVariants) {
    names.emplace_back(variant.name);
  }
  return names;
}

Result<std::unique_ptr<Racer>> OpenLlamaPeer(const PeerOptions& options, const TokenFeed& feed,
                                             const StopCheck& stop) {
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  llama_model_params params = llama_model_default_params();
  params.use_extra_bufts = false;
  ModelPtr model(llama_model_load_from_file(options.model_path.c_str(), params));
  if (model == nullptr) {
    return Status(Code::kDataLoss, fmt::format("llama.cpp cannot load {}", options.model_path));
  }
  const std::string_view resolved = ResolveDefault(model.get(), options);
  auto peer = std::make_unique<LlamaPeer>(std::move(model), options, feed, stop);
  std::vector<Variant> variants(kVariants.begin(), kVariants.end());
  if (resolved.empty()) {
    variants.push_back({kDefault, LLAMA_FLASH_ATTN_TYPE_AUTO, GGML_TYPE_F16});
  }
  for (const Variant& variant : variants) {
    const bool is_default = variant.name == (resolved.empty() ? kDefault : resolved);
    if (!Wanted(options, variant.name) && !(is_default && Wanted(options, kDefault))) {
      continue;
    }
    const Status status = peer->AddLane(variant, is_default);
    if (!status.ok()) {
      return status;
    }
  }
  return std::unique_ptr<Racer>(std::move(peer));
}

}  // namespace rkv::bench
