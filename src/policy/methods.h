// The methods that the registry knows: one description and one factory each.
#ifndef RKV_POLICY_METHODS_H_
#define RKV_POLICY_METHODS_H_

#include <memory>

#include "policy/option_string.h"
#include "policy/policy.h"
#include "rkv/status.h"

namespace rkv::policy {

// A factory. Errors: kInvalidArgument for unknown options and values out of range.
using MadePolicy = Result<std::unique_ptr<const Policy>>;

// Full-KV: nothing is evicted, everything is read (specification 2.10).
PolicyInfo FullInfo();
MadePolicy MakeFull(const MethodString& given);

// Hybrid sparse attention alone: nothing is evicted, k rows are read (specification 2.3).
PolicyInfo HsaInfo();
MadePolicy MakeHsa(const MethodString& given);

// RocketKV: SnapKV eviction after the prompt, then hybrid sparse attention (specification 2.1).
PolicyInfo RocketKvInfo();
MadePolicy MakeRocketKv(const MethodString& given);

}  // namespace rkv::policy

#endif  // RKV_POLICY_METHODS_H_
