// The methods that the registry knows: one file and one function each.
#ifndef RKV_POLICY_METHODS_H_
#define RKV_POLICY_METHODS_H_

#include <memory>

#include "policy/composed.h"
#include "policy/parts.h"
#include "policy/policy.h"

namespace rkv::policy {

// How the registry makes a method.
struct Method {
  PolicyInfo info;  // without options, which its parts show
  Parts (*make)();
  // What a composition may take one of: given where `make` is one half although both exist.
  Parts (*halves)() = nullptr;
};

Method FullMethod();        // Full-KV, specification 2.10
Method RocketKvMethod();    // SnapKV eviction, then hybrid sparse attention, 2.1
Method RocketKvMtMethod();  // the same over a view that every turn chooses anew, 2.2
Method HsaMethod();         // hybrid sparse attention alone, 2.3
Method SnapKvMethod();      // 2.4
Method QuestMethod();       // 2.5
Method SparQMethod();       // 2.6
Method AdaKvMethod();       // 2.7
Method ExactTopKMethod();   // 2.8
Method DuoMethod();         // DuoAttention, 2.9
Method StreamingMethod();   // StreamingLLM, 2.11
Method H2oMethod();         // 2.12
Method FastGenMethod();     // 2.13
Method ChunkKvMethod();     // 2.14
Method ShadowKvMethod();    // 2.15
Method CateKvMethod();      // 2.16
Method LrqkMethod();        // 2.17
Method SqueezeMethod();     // 2.18
Method PyramidMethod();     // PyramidKV, section 3
Method RandomMethod();      // random rows, a floor

}  // namespace rkv::policy

#endif  // RKV_POLICY_METHODS_H_
