// A complete llama or qwen2 model of a few kilobytes with random f32 weights.
#ifndef RKV_TESTS_SUPPORT_TINY_GGUF_H_
#define RKV_TESTS_SUPPORT_TINY_GGUF_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "support/gguf_builder.h"

namespace rkv::testing {

struct TinyGgufOptions {
  std::string architecture = "llama";
  std::uint32_t layers = 2;
  std::uint32_t embd = 16;
  std::uint32_t heads = 4;
  std::uint32_t kv_heads = 2;
  std::uint32_t head_dim = 4;
  std::uint32_t ff = 24;
  bool byte_tokens = false;  // 256 tokens for bytes, so that any text can be encoded
  bool bpe = false;          // vocabulary of model gpt2, else llama
  bool tied = false;
};

// <unk>, <s>, </s>, letters, pieces; bytes at the end.
inline std::vector<std::string> TinyTokens(const TinyGgufOptions& options) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "\xe2\x96\x81"};
  if (options.bpe) {
    tokens = {"<unk>", "<s>", "</s>", "\xc4\xa0", "\xc4\x8a"};
  }
  for (char c = 'a'; c <= 'h'; ++c) {
    tokens.emplace_back(1, c);
  }
  tokens.insert(tokens.end(), {"ab", "cd"});
  if (options.byte_tokens) {
    constexpr std::string_view kHex = "0123456789ABCDEF";
    for (std::size_t i = 0; i < 256; ++i) {
      tokens.push_back(std::string("<0x") + kHex[i / 16] + kHex[i % 16] + '>');
    }
  }
  return tokens;
}

inline void AddTinyVocabulary(const TinyGgufOptions& options, GgufBuilder& out) {
  const std::vector<std::string> tokens = TinyTokens(options);
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool byte = tokens[i].rfind("<0x", 0) == 0;
    types.push_back(i == 0 ? 2 : i < 3 ? 3 : byte ? 6 : 1);
    scores.push_back(-static_cast<float>(i));
  }
  out.String("tokenizer.ggml.model", options.bpe ? "gpt2" : "llama");
  out.Strings("tokenizer.ggml.tokens", tokens);
  out.Numbers("tokenizer.ggml.token_type", 5, types);
  if (options.bpe) {
    out.String("tokenizer.ggml.pre", "gpt-2");
    out.Strings("tokenizer.ggml.merges", {"a b", "c d"});
  } else {
    out.Numbers("tokenizer.ggml.scores", 6, scores);
  }
  out.U32("tokenizer.ggml.bos_token_id", 1).U32("tokenizer.ggml.eos_token_id", 2);
  out.U32("tokenizer.ggml.unknown_token_id", 0);
  out.Bool("tokenizer.ggml.add_bos_token", true).Bool("tokenizer.ggml.add_eos_token", false);
}

inline void AddTinyTensors(const TinyGgufOptions& o, GgufBuilder& out) {
  Rng rng(7);
  const auto add = [&](const std::string& name, std::vector<std::uint64_t> dims) {
    std::uint64_t count = 1;
    for (const std::uint64_t dim : dims) {
      count *= dim;
    }
    std::vector<float> values(count);
    for (float& value : values) {
      value = dims.size() == 1 ? 1.0f + 0.1f * rng.Normal() : 0.3f * rng.Normal();
    }
    out.FloatTensor(name, std::move(dims), values);
  };
  const std::uint64_t vocab = TinyTokens(o).size();
  const std::uint64_t q_width = std::uint64_t{o.heads} * o.head_dim;
  const std::uint64_t kv_width = std::uint64_t{o.kv_heads} * o.head_dim;
  add("token_embd.weight", {o.embd, vocab});
  add("output_norm.weight", {o.embd});
  if (!o.tied) {
    add("output.weight", {o.embd, vocab});
  }
  for (std::uint32_t i = 0; i < o.layers; ++i) {
    const std::string blk = "blk." + std::to_string(i) + '.';
    add(blk + "attn_norm.weight", {o.embd});
    add(blk + "attn_q.weight", {o.embd, q_width});
    add(blk + "attn_k.weight", {o.embd, kv_width});
    add(blk + "attn_v.weight", {o.embd, kv_width});
    add(blk + "attn_output.weight", {q_width, o.embd});
    if (o.architecture == "qwen2") {
      add(blk + "attn_q.bias", {q_width});
      add(blk + "attn_k.bias", {kv_width});
      add(blk + "attn_v.bias", {kv_width});
    }
    add(blk + "ffn_norm.weight", {o.embd});
    add(blk + "ffn_gate.weight", {o.embd, o.ff});
    add(blk + "ffn_up.weight", {o.embd, o.ff});
    add(blk + "ffn_down.weight", {o.ff, o.embd});
  }
}

inline GgufBuilder TinyGguf(const TinyGgufOptions& o = {}) {
  GgufBuilder out;
  const std::string arch = o.architecture + '.';
  out.String("general.architecture", o.architecture).String("general.name", "tiny");
  out.U32("general.alignment", 32).U32("general.file_type", 0);
  out.U32(arch + "block_count", o.layers).U32(arch + "context_length", 128);
  out.U32(arch + "embedding_length", o.embd).U32(arch + "feed_forward_length", o.ff);
  out.U32(arch + "attention.head_count", o.heads);
  out.U32(arch + "attention.head_count_kv", o.kv_heads);
  out.U32(arch + "attention.key_length", o.head_dim);
  out.U32(arch + "attention.value_length", o.head_dim);
  out.U32(arch + "rope.dimension_count", o.head_dim);
  out.F32(arch + "attention.layer_norm_rms_epsilon", 1e-5f);
  AddTinyVocabulary(o, out);
  AddTinyTensors(o, out);
  return out;
}

}  // namespace rkv::testing

#endif  // RKV_TESTS_SUPPORT_TINY_GGUF_H_
