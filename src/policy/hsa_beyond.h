// What hybrid sparse attention can do beyond the paper. Everything is off by default.
#ifndef RKV_POLICY_HSA_BEYOND_H_
#define RKV_POLICY_HSA_BEYOND_H_

#include <cstddef>
#include <cstdint>

#include "policy/choose_rows.h"
#include "policy/head_state.h"
#include "policy/option_visitor.h"
#include "rkv/status.h"

namespace rkv::policy {

// Options of hsa, and so of rocketkv and rocketkv-mt.
class HsaBeyond {
 public:
  void Show(OptionVisitor& options);
  // Errors: kInvalidArgument when more rows are forced than the k that a step reads.
  Status Check(std::int32_t k) const;

  // Whether unread rows count by their mean value, so that the state must be CompletedChunks.
  bool completes() const { return complete_ == 1; }
  // How a step chooses k rows. `state`: of NewChunks(…, completes()).
  Choice ChoiceOf(std::int32_t k, const HeadState& state) const;

 private:
  double top_p_ = 1;   // Twilight, arXiv:2502.02770: the fewest rows with this mass, at most k
  ForcedRows forced_;  // StreamingLLM's sinks and window, arXiv:2309.17453
  std::size_t complete_ = 0;  // SparQ's completion, arXiv:2312.04985: no, mean
};

}  // namespace rkv::policy

#endif  // RKV_POLICY_HSA_BEYOND_H_
