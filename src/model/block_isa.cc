#include "model/block_isa.h"

namespace rkv::model {

bool HasBlockIsa([[maybe_unused]] BlockIsa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case BlockIsa::kVnni:
      return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
    case BlockIsa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
    case BlockIsa::kNone:
      return false;
  }
#endif
  return false;
}

BlockIsa BestBlockIsa() {
  static const BlockIsa best = HasBlockIsa(BlockIsa::kVnni)   ? BlockIsa::kVnni
                               : HasBlockIsa(BlockIsa::kAvx2) ? BlockIsa::kAvx2
                                                              : BlockIsa::kNone;
  return best;
}

}  // namespace rkv::model
