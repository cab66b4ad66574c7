#include "policy/rows.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

namespace rkv::policy {
namespace {

using List = std::vector<std::int32_t>;

// What `live` and `chosen` share, or `live` when that is nothing.
List Common(const List& live, const List& chosen) {
  List both;
  std::ranges::set_intersection(live, chosen, std::back_inserter(both));
  return both.empty() ? live : both;
}

}  // namespace

void Rows::Reset() {
  all = true;
  list.clear();
  heads.clear();
  budget = 0;
  rule = 0;
  estimate_bytes = 0;
  share.clear();
  mean_value = nullptr;
}

attention::RowList Rows::Of(std::int32_t g, std::int32_t slots) const {
  if (all) {
    return {nullptr, slots};
  }
  const List& rows = heads.empty() ? list : heads[static_cast<std::size_t>(g)];
  return {rows.data(), static_cast<std::int32_t>(rows.size())};
}

void Intersect(const Rows& live, Rows& read) {
  if (live.all) {
    return;
  }
  if (read.all) {
    read.all = false;
    read.list = live.list;
    read.heads = live.heads;
    return;
  }
  if (live.heads.empty() && read.heads.empty()) {
    read.list = Common(live.list, read.list);
    return;
  }
  std::vector<List> heads(std::max(live.heads.size(), read.heads.size()));
  for (std::size_t g = 0; g < heads.size(); ++g) {
    heads[g] = Common(live.heads.empty() ? live.list : live.heads[g],
                      read.heads.empty() ? read.list : read.heads[g]);
  }
  read.list.clear();
  read.heads = std::move(heads);
}

std::vector<std::int32_t> Union(const Rows& rows) {
  if (rows.heads.empty()) {
    return rows.list;
  }
  List all;
  for (const List& head : rows.heads) {
    List merged;
    std::ranges::set_union(all, head, std::back_inserter(merged));
    all = std::move(merged);
  }
  return all;
}

std::vector<std::int32_t> PlacesIn(std::span<const std::int32_t> kept,
                                   std::span<const std::int32_t> slots) {
  List places;
  for (const std::int32_t slot : slots) {
    const auto at = std::ranges::lower_bound(kept, slot);
    if (at != kept.end() && *at == slot) {
      places.push_back(static_cast<std::int32_t>(at - kept.begin()));
    }
  }
  return places;
}

bool WorthDropping(std::int32_t live, std::int32_t dead) { return dead > std::min(live / 8, 64); }

}  // namespace rkv::policy
