// LlamaOracle: the same model in libllama, for logits to compare with. Full-KV, no extra buffer
// types (its AMX path crashes on some machines).
#ifndef RKV_TESTS_SUPPORT_LLAMA_ORACLE_H_
#define RKV_TESTS_SUPPORT_LLAMA_ORACLE_H_

#include <llama.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rkv::test {

struct OracleOptions {
  std::int32_t context = 512;
  std::int32_t threads = 2;
  bool f32_cache = false;  // f16 else, libllama's default
  bool flash_attention = false;
};

// Not thread-safe. A model that cannot be loaded leaves ok() false.
class LlamaOracle {
 public:
  LlamaOracle(const std::string& path, const OracleOptions& options) {
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    llama_backend_init();
    llama_model_params model_params = llama_model_default_params();
    model_params.use_extra_bufts = false;
    model_.reset(llama_model_load_from_file(path.c_str(), model_params));
    if (model_ == nullptr) {
      return;
    }
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<std::uint32_t>(options.context);
    params.n_batch = 2048;
    params.n_ubatch = 512;
    params.n_threads = options.threads;
    params.n_threads_batch = options.threads;
    params.flash_attn_type =
        options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    if (options.f32_cache) {
      params.type_k = GGML_TYPE_F32;
      params.type_v = GGML_TYPE_F32;
    }
    context_.reset(llama_init_from_model(model_.get(), params));
  }

  bool ok() const { return context_ != nullptr; }
  std::int32_t vocab() const { return llama_vocab_n_tokens(llama_model_get_vocab(model_.get())); }

  // Feeds tokens in libllama's batches; logits() then belong to the last one. False on failure.
  bool Feed(std::span<const std::int32_t> tokens) {
    constexpr std::size_t kBatch = 2048;
    for (std::size_t i = 0; i < tokens.size(); i += kBatch) {
      std::vector<llama_token> part(
          tokens.begin() + static_cast<std::ptrdiff_t>(i),
          tokens.begin() + static_cast<std::ptrdiff_t>(std::min(i + kBatch, tokens.size())));
      const auto count = static_cast<std::int32_t>(part.size());
      if (llama_decode(context_.get(), llama_batch_get_one(part.data(), count)) != 0) {
        return false;
      }
    }
    return true;
  }

  std::span<const float> logits() const {
    return {llama_get_logits_ith(context_.get(), -1), static_cast<std::size_t>(vocab())};
  }

 private:
  struct FreeModel {
    void operator()(llama_model* p) const { llama_model_free(p); }
  };
  struct FreeContext {
    void operator()(llama_context* p) const { llama_free(p); }
  };
  std::unique_ptr<llama_model, FreeModel> model_;
  std::unique_ptr<llama_context, FreeContext> context_;
};

}  // namespace rkv::test

#endif  // RKV_TESTS_SUPPORT_LLAMA_ORACLE_H_
