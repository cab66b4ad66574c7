// SnapKV eviction: the rows that the last prompt tokens attend to most, smoothed, and those tokens.
#ifndef RKV_POLICY_SNAPKV_H_
#define RKV_POLICY_SNAPKV_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "policy/parts.h"

namespace rkv::policy {

// Options of every method that scores the prompt by its last queries.
inline constexpr IntRange kSnapKvWindow{.low = 1, .high = 4096};
inline constexpr IntRange kSnapKvKernel{.low = 1, .high = 65535, .odd = true};
inline constexpr std::string_view kSnapKvWindowHelp =
    "last prompt tokens whose attention scores the prompt";
inline constexpr std::string_view kSnapKvKernelHelp = "width of the max pooling over row scores";

struct SnapKvOptions {
  std::int32_t window = 32;  // w, "window_size"
  std::int32_t kernel = 7;   // "kernel_size", odd
  bool per_head = false;     // "heads": every query head keeps its own rows, budget / group of them
  bool fixed_heads = false;  // no such option
};

// Policy specification 2.4, and 2.1 stage 1 with its wider kernel.
std::unique_ptr<Evictor> MakeSnapKv(const SnapKvOptions& options);

}  // namespace rkv::policy

#endif  // RKV_POLICY_SNAPKV_H_
