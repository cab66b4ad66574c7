#include "policy/sliding_window.h"

#include <algorithm>
#include <numeric>

#include "policy/rows.h"

namespace rkv::policy {

void SlidingWindow::Fill(std::int32_t slots, Rows& out) const {
  out.all = slots <= rows();
  if (out.all) {
    return;
  }
  out.list.resize(static_cast<std::size_t>(rows()));
  const auto tail = out.list.begin() + sinks;
  std::iota(out.list.begin(), tail, 0);
  std::iota(tail, out.list.end(), slots - recent);
}

void SlidingWindow::Drop(std::int32_t slots, Rows& keep) const {
  const std::int32_t live = std::min(slots, rows());
  if (WorthDropping(live, slots - live)) {
    Fill(slots, keep);
  }
}

}  // namespace rkv::policy
