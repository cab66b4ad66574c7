// Which instruction sets the kernels are compiled for. Include before any Highway header.
#ifndef RKV_ATTENTION_CPU_TARGETS_H_
#define RKV_ATTENTION_CPU_TARGETS_H_

// SSSE3 without SSE4 has not been built since 2008. Scalable vectors (SVE, RVV) cannot be array
// elements, which the register-blocked kernels need; such CPUs run the NEON or emulated form.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#endif  // RKV_ATTENTION_CPU_TARGETS_H_
