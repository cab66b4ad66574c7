#include "policy/attention_sums.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "policy/rows.h"
#include "policy/scored_rows.h"

namespace rkv::policy {
namespace {

std::size_t Size(std::int64_t n) { return static_cast<std::size_t>(n); }

// The part of some heads of a group, all of which read `slots`.
void AddHeads(const HeadDecode& in, const attention::GroupQuery& query,
              const attention::RowList& slots, const float* log_sum, std::span<float> sums) {
  const auto slot = [&](std::int32_t i) { return slots.list == nullptr ? i : slots.list[i]; };
  Scratch::Frame frame(*in.scratch);
  attention::RowList rows = slots;
  if (in.rows.list != nullptr) {  // slots of a view: kernels want rows
    auto* const mapped = frame.Array<std::int32_t>(Size(slots.count));
    for (std::int32_t i = 0; i < slots.count; ++i) {
      mapped[i] = in.rows.Row(slot(i));
    }
    rows.list = mapped;
  }
  auto* scores = frame.Array<float>(Size(query.group) * Size(slots.count));
  in.backend->score_rows(query, in.rows.head, rows, in.scale, scores);
  for (std::int32_t g = 0; g < query.group; ++g, scores += slots.count) {
    for (std::int32_t i = 0; i < slots.count; ++i) {
      sums[Size(slot(i))] += std::exp(scores[i] - log_sum[g]);
    }
  }
}

}  // namespace

SlotSums SlotSums::AfterPrompt(const HeadPrefill& in) {
  SlotSums out;
  if (in.state != nullptr) {
    out = static_cast<const AttentionSums*>(in.state)->slots();
  }
  Check(out.slots() <= in.view.rows && in.column_mass.size() == Size(in.view.rows),
        "sums of slots that are no rows of the prompt");
  out.Resize(in.view.rows);
  for (std::size_t row = 0; row < out.sums.size(); ++row) {
    out.sums[row] += in.column_mass[row];
  }
  return out;
}

void SlotSums::Resize(std::int32_t slots) {
  for (std::int32_t slot = this->slots(); slot < slots; ++slot) {
    live.push_back(slot);
  }
  live.erase(std::ranges::lower_bound(live, slots), live.end());
  sums.resize(Size(slots), 0.0f);
}

void SlotSums::Keep(std::span<const std::int32_t> kept) {
  std::vector<float> left;
  left.reserve(kept.size());
  for (const std::int32_t slot : kept) {
    left.push_back(sums[Size(slot)]);
  }
  sums = std::move(left);
  live = PlacesIn(kept, live);
}

void SlotSums::LeaveHeaviest(std::int32_t heavy, std::int32_t recent) {
  if (live_slots() <= heavy + recent) {
    return;
  }
  const std::vector<std::int32_t> last(live.end() - recent, live.end());
  live.resize(live.size() - last.size());
  live = BestSlots(std::move(live), heavy, sums);
  live.insert(live.end(), last.begin(), last.end());
}

void SlotSums::Fill(Rows& rows) const {
  rows.all = live_slots() == slots();
  if (!rows.all) {
    rows.list = live;
  }
  rows.estimate_bytes += static_cast<double>(live.size() * sizeof(float));
}

void SlotSums::Drop(Rows& keep) const {
  keep.all = !WorthDropping(live_slots(), slots() - live_slots());
  if (!keep.all) {
    keep.list = live;
  }
}

std::vector<std::int32_t> BestSlots(std::vector<std::int32_t> slots, std::int32_t count,
                                    std::span<const float> rank) {
  if (Size(count) < slots.size()) {
    const auto end = slots.begin() + count;
    std::nth_element(slots.begin(), end, slots.end(), [&](std::int32_t a, std::int32_t b) {
      const float left = NanLast(rank[Size(a)]);
      const float right = NanLast(rank[Size(b)]);
      return left != right ? left > right : a < b;
    });
    slots.erase(end, slots.end());
    std::ranges::sort(slots);
  }
  return slots;
}

std::size_t AttentionSums::Bytes(std::int64_t rows) {
  return 2 * Size(rows) * (sizeof(float) + sizeof(std::int32_t));
}

Status AttentionSums::Build(const StateBuild& build) {
  slots_ = SlotSums::AfterPrompt(*build.prefill);
  if (!build.keep->all) {
    slots_.Keep(build.keep->list);
  }
  return Append(build.rows);
}

Status AttentionSums::Append(const kv::SlotView& rows) {
  slots_.Resize(rows.slots);
  return Meter();
}

void AttentionSums::Truncate(const kv::SlotView& rows) { slots_.Resize(rows.slots); }

Status AttentionSums::Keep(const kv::SlotView& /*rows*/, std::span<const std::int32_t> kept) {
  slots_.Keep(kept);
  return Meter();
}

Status AttentionSums::Meter() {
  meter_->SubIndex(bytes_);
  bytes_ = slots_.sums.capacity() * sizeof(float) + slots_.live.capacity() * sizeof(std::int32_t);
  meter_->AddIndex(bytes_);
  return {};
}

void AddStepMass(const HeadDecode& in, const Rows& read, std::span<const float> log_sum,
                 std::span<float> sums) {
  const auto head_dim = Size(in.rows.head.head_dim);
  const bool shared = read.heads.empty();
  for (std::int32_t g = 0; g < (shared ? 1 : in.query.group); ++g) {
    const attention::GroupQuery query = {in.query.q + Size(g) * head_dim,
                                         shared ? in.query.group : 1};
    AddHeads(in, query, read.Of(g, in.rows.slots), log_sum.data() + g, sums);
  }
}

}  // namespace rkv::policy
