// RocketKV and RocketKV-MT: SnapKV eviction with a wide pooling and an adaptive share of the
// compression, then hybrid sparse attention. Policy specification 2.1 and 2.2.
#include "policy/methods.h"
#include "policy/snapkv.h"

namespace rkv::policy {
namespace {

constexpr std::int32_t kKernel = 63;

Parts RocketParts(std::int32_t window, bool park) {
  return {.evictor = MakeSnapKv({.window = window, .kernel = kKernel, .fixed_heads = true}),
          .selector = HsaMethod().make().selector,
          .park = park,
          .alpha = -1};
}

}  // namespace

Method RocketKvMethod() {
  return {.info = {.name = "rocketkv",
                   .keeps = "prompt_budget rows per KV head: the last window_size tokens and the "
                            "rows that they attend to most",
                   .reads = "topk of the kept rows, chosen from chunk minima and maxima in topr "
                            "channels",
                   .state = "minimum and maximum key of each chunk: 1/page_size of what is kept",
                   .source = "RocketKV, arXiv:2502.14051"},
          .make = [] { return RocketParts(32, false); }};
}

Method RocketKvMtMethod() {
  return {.info = {.name = "rocketkv-mt",
                   .keeps = "everything; every turn chooses prompt_budget rows per KV head anew",
                   .reads = "topk of the chosen rows, as rocketkv",
                   .state = "the list of chosen rows, and minimum and maximum key of their chunks",
                   .source = "RocketKV section 3.5, arXiv:2502.14051"},
          .make = [] { return RocketParts(128, true); }};
}

}  // namespace rkv::policy
