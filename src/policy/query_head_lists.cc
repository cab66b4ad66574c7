#include "policy/query_head_lists.h"

#include <algorithm>

#include "policy/rows.h"

namespace rkv::policy {
namespace {

using List = std::vector<std::int32_t>;

}  // namespace

Status QueryHeadLists::Build(const StateBuild& build) {
  heads_.clear();
  for (const List& rows : build.keep->heads) {
    heads_.push_back(PlacesIn(build.keep->list, rows));
  }
  slots_ = heads_.empty() ? build.rows.slots : static_cast<std::int32_t>(build.keep->list.size());
  return Append(build.rows);
}

Status QueryHeadLists::Append(const kv::SlotView& rows) {
  for (; slots_ < rows.slots; ++slots_) {
    for (List& head : heads_) {
      head.push_back(slots_);
    }
  }
  return {};
}

void QueryHeadLists::Truncate(const kv::SlotView& rows) {
  slots_ = rows.slots;
  for (List& head : heads_) {
    head.erase(std::ranges::lower_bound(head, slots_), head.end());
  }
}

Status QueryHeadLists::Keep(const kv::SlotView& rows, std::span<const std::int32_t> kept) {
  slots_ = rows.slots;
  for (List& head : heads_) {
    head = PlacesIn(kept, head);
  }
  return {};
}

void QueryHeadLists::Fill(Rows& live) const {
  live.all = heads_.empty();
  live.heads = heads_;
}

void ScoreQueryHeads(const LayerPrefill& layer, const HeadPrefill& in, std::vector<float>& scores) {
  const auto prefix = static_cast<std::size_t>(in.prefix());
  const auto group = static_cast<std::size_t>(in.window.group);
  scores.resize(group * prefix);
  for (std::size_t g = 0; g < group; ++g) {
    attention::WindowQuery query = in.window;
    query.q += g * static_cast<std::size_t>(in.view.head_dim);
    query.group = 1;
    layer.backend->window_mass(query, in.view, std::span(scores).subspan(g * prefix, prefix),
                               *layer.scratch);
  }
}

}  // namespace rkv::policy
