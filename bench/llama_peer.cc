// llama_peer: prefill and decode speed of libllama on one text, as one line of JSON.
// usage: llama_peer MODEL TEXT_FILE THREADS FLASH_ATTENTION(0|1) DECODE_TOKENS [MAX_PROMPT_TOKENS]
// With DECODE_TOKENS 0 it only counts the text's tokens.
#include <llama.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/clock.h"

namespace {

struct FreeModel {
  void operator()(llama_model* p) const { llama_model_free(p); }
};
struct FreeContext {
  void operator()(llama_context* p) const { llama_free(p); }
};

std::vector<llama_token> Tokenize(const llama_vocab* vocab, const std::string& text) {
  std::vector<llama_token> tokens(text.size() + 8);
  const int count = llama_tokenize(vocab, text.data(), static_cast<int>(text.size()), tokens.data(),
                                   static_cast<int>(tokens.size()), true, false);
  tokens.resize(static_cast<std::size_t>(std::max(count, 0)));
  return tokens;
}

llama_context_params Params(std::size_t tokens, int threads, bool flash) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<std::uint32_t>(tokens);
  params.n_batch = 2048;
  params.n_ubatch = 512;
  params.n_threads = threads;
  params.n_threads_batch = threads;
  params.flash_attn_type = flash ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  return params;
}

bool Feed(llama_context* context, std::vector<llama_token>& tokens) {
  for (std::size_t i = 0; i < tokens.size(); i += 2048) {
    const auto count = static_cast<int>(std::min<std::size_t>(2048, tokens.size() - i));
    if (llama_decode(context, llama_batch_get_one(tokens.data() + i, count)) != 0) {
      return false;
    }
  }
  return true;
}

// Greedy; the seconds that `count` tokens took, negative on failure.
double Decode(llama_context* context, int vocab, int count) {
  const double start = rkv::NowSeconds();
  for (int i = 0; i < count; ++i) {
    const float* logits = llama_get_logits_ith(context, -1);
    auto next = static_cast<llama_token>(std::max_element(logits, logits + vocab) - logits);
    if (llama_decode(context, llama_batch_get_one(&next, 1)) != 0) {
      return -1;
    }
  }
  return rkv::NowSeconds() - start;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 6) {
    std::fprintf(stderr, "usage: llama_peer MODEL TEXT_FILE THREADS FLASH DECODE [MAX_PROMPT]\n");
    return 2;
  }
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  llama_backend_init();
  const int count = std::atoi(argv[5]);
  llama_model_params model_params = llama_model_default_params();
  model_params.use_extra_bufts = false;  // its AMX path crashes on some machines
  model_params.vocab_only = count == 0;
  const std::unique_ptr<llama_model, FreeModel> model(
      llama_model_load_from_file(argv[1], model_params));
  std::ostringstream text;
  text << std::ifstream(argv[2]).rdbuf();
  if (model == nullptr) {
    std::fprintf(stderr, "llama_peer: cannot load %s\n", argv[1]);
    return 1;
  }
  const llama_vocab* vocab = llama_model_get_vocab(model.get());
  std::vector<llama_token> tokens = Tokenize(vocab, text.str());
  if (argc > 6) {
    tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(std::atoi(argv[6]))));
  }
  if (count == 0) {
    std::printf("{\"prompt_tokens\": %zu}\n", tokens.size());
    return 0;
  }
  const std::unique_ptr<llama_context, FreeContext> context(llama_init_from_model(
      model.get(), Params(tokens.size() + static_cast<std::size_t>(count) + 16, std::atoi(argv[3]),
                          std::atoi(argv[4]) != 0)));
  const double start = rkv::NowSeconds();
  if (context == nullptr || !Feed(context.get(), tokens)) {
    std::fprintf(stderr, "llama_peer: the prompt failed\n");
    return 1;
  }
  const double prefill = rkv::NowSeconds() - start;
  const double decode = Decode(context.get(), llama_vocab_n_tokens(vocab), count);
  std::printf(
      "{\"prompt_tokens\": %zu, \"prefill_tokens_per_second\": %.3f, "
      "\"decode_tokens_per_second\": %.3f}\n",
      tokens.size(), static_cast<double>(tokens.size()) / prefill, count / decode);
  return 0;
}
