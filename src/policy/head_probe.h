// HeadProbe: a policy that changes nothing and measures every KV head, for head tables.
#ifndef RKV_POLICY_HEAD_PROBE_H_
#define RKV_POLICY_HEAD_PROBE_H_

#include <memory>
#include <span>
#include <string_view>

#include "policy/policy.h"
#include "rkv/status.h"

namespace rkv::policy {

// A policy that keeps everything and, in every prefill, adds a head's measure to scores
// [layers][kv_heads], which must outlive it. The higher, the more rows the head needs. No two
// prefills at once.
//   "duo": the share of the last queries' attention that goes beyond the first rows and the last
//   ones. In place of the paper's trained gates.
//   "catekv": minus the coefficient of variation of chunk hits, specification 2.16.
// Errors: kInvalidArgument for any other method.
Result<std::unique_ptr<const Policy>> MakeHeadProbe(std::string_view method,
                                                    std::span<float> scores);

}  // namespace rkv::policy

#endif  // RKV_POLICY_HEAD_PROBE_H_
