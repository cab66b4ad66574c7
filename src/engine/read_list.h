// ReadList: the rows of a store that one kv_head reads at a step.
#ifndef RKV_ENGINE_READ_LIST_H_
#define RKV_ENGINE_READ_LIST_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/backend.h"
#include "kv/head_view.h"
#include "policy/policy.h"

namespace rkv::engine {

// What a policy chose by slot, translated to rows where the slots are a view of the store.
class ReadList {
 public:
  // `slots` and `read` must outlive the use of this object.
  void Map(const kv::SlotView& slots, const policy::Rows& read) {
    slots_ = slots;
    read_ = &read;
    mapped_.resize(slots.list == nullptr || read.all ? 0
                                                     : std::max<std::size_t>(read.heads.size(), 1));
    for (std::size_t g = 0; g < mapped_.size(); ++g) {
      const attention::RowList chosen = read.Of(static_cast<std::int32_t>(g), slots.slots);
      mapped_[g].resize(static_cast<std::size_t>(chosen.count));
      for (std::size_t i = 0; i < mapped_[g].size(); ++i) {
        mapped_[g][i] = slots.list[chosen.list[i]];
      }
    }
  }

  // Rows that query head g reads.
  attention::RowList Of(std::int32_t g) const {
    if (read_->all) {
      return {slots_.list, slots_.slots};
    }
    if (mapped_.empty()) {
      return read_->Of(g, slots_.slots);
    }
    const auto& rows = mapped_[read_->heads.empty() ? 0 : static_cast<std::size_t>(g)];
    return {rows.data(), static_cast<std::int32_t>(rows.size())};
  }

  // The most rows that any query head of the group reads.
  std::int32_t MostRows() const {
    std::int32_t most = Of(0).count;
    for (std::size_t g = 1; g < read_->heads.size(); ++g) {
      most = std::max(most, Of(static_cast<std::int32_t>(g)).count);
    }
    return most;
  }

 private:
  kv::SlotView slots_;
  const policy::Rows* read_ = nullptr;
  std::vector<std::vector<std::int32_t>> mapped_;
};

}  // namespace rkv::engine

#endif  // RKV_ENGINE_READ_LIST_H_
