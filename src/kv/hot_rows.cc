#include "kv/hot_rows.h"

#include <algorithm>

namespace rkv::kv {

void HotRows::Truncate(std::int32_t rows) {
  list_.erase(std::ranges::lower_bound(list_, rows), list_.end());
}

void HotRows::Keep(std::span<const std::int32_t> kept) {
  for (std::size_t i = 0; i < kept.size() && !all_; ++i) {
    list_[i] = list_[static_cast<std::size_t>(kept[i])];
  }
  list_.resize(all_ ? 0 : kept.size());
}

}  // namespace rkv::kv
