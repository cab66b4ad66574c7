#include "policy/fastgen_rules.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

#include "policy/attention_sums.h"

namespace rkv::policy {
namespace {

using List = std::vector<std::int32_t>;

// The rule from which on a token is always kept.
FastGenRule RuleOf(std::int32_t position, std::int32_t sinks, std::span<const TokenClass> classes) {
  const auto at = static_cast<std::size_t>(position);
  const TokenClass token = at < classes.size() ? classes[at] : TokenClass::kWord;
  if (position < sinks || token == TokenClass::kSpecial) {
    return kSpecialRows;
  }
  return token == TokenClass::kPunctuation ? kPunctuation : kFrequent;
}

List Merge(const List& a, const List& b) {
  List both;
  std::ranges::set_union(a, b, std::back_inserter(both));
  return both;
}

double Sum(const List& rows, std::span<const float> mass) {
  double sum = 0;
  for (const std::int32_t row : rows) {
    sum += static_cast<double>(mass[static_cast<std::size_t>(row)]);
  }
  return sum;
}

}  // namespace

std::int32_t FastGenCounts::FrequentRows(std::size_t fixed) const {
  const std::int32_t left = room - local - static_cast<std::int32_t>(fixed);
  return room > 0 ? std::clamp(left, 0, frequent) : frequent;
}

std::int64_t FastGenCounts::RowsAtEnd(FastGenRule rule, std::int64_t kept,
                                      std::int32_t more) const {
  if (rule == kEverything) {
    return kept + more;
  }
  const std::int64_t most = room > 0 ? std::max<std::int64_t>(kept, room) : kept + frequent;
  return rule == kLocal ? std::min(kept + more, most) : kept;
}

FastGenRule FastGenProfile::First(double threshold) const {
  const auto found =
      std::ranges::find_if(recovery, [&](double r) { return r >= threshold; }) - recovery.begin();
  return static_cast<FastGenRule>(std::min<std::ptrdiff_t>(found, kEverything));
}

FastGenProfile ProfileHead(const LayerPrefill& layer, const HeadPrefill& head,
                           const FastGenCounts& counts) {
  SlotSums slots = SlotSums::AfterPrompt(head);
  FastGenProfile out;
  List marks;
  List local;
  for (const std::int32_t row : slots.live) {
    const FastGenRule rule = RuleOf(head.view.positions[row], counts.sinks, layer.classes);
    if (rule == kSpecialRows) {
      out.rows[kSpecialRows].push_back(row);
    } else if (rule == kPunctuation) {
      marks.push_back(row);
    }
    if (row >= head.view.rows - counts.local) {
      local.push_back(row);
    }
  }
  out.rows[kPunctuation] = Merge(out.rows[kSpecialRows],
                                 BestSlots(std::move(marks), counts.PunctuationRows(), slots.sums));
  List words;
  std::ranges::set_difference(slots.live, out.rows[kPunctuation], std::back_inserter(words));
  const std::int32_t frequent = counts.FrequentRows(out.rows[kPunctuation].size());
  out.rows[kFrequent] =
      Merge(out.rows[kPunctuation], BestSlots(std::move(words), frequent, slots.sums));
  out.rows[kLocal] = Merge(out.rows[kFrequent], local);
  out.rows[kEverything] = std::move(slots.live);

  const double all = static_cast<double>(layer.turn_tokens) * layer.shape.group;
  for (const FastGenRule rule : {kSpecialRows, kPunctuation, kFrequent}) {
    out.recovery[rule] = Sum(out.rows[rule], head.column_mass) / all;
  }
  List rest;
  std::ranges::set_difference(out.rows[kEverything], out.rows[kFrequent], std::back_inserter(rest));
  out.recovery[kLocal] = out.recovery[kFrequent] + Sum(rest, head.near_mass) / all;
  out.recovery[kEverything] = std::max(1.0, out.recovery[kLocal]);
  return out;
}

namespace {

// The heads' rows at the end of the answer, and rules under them.
class Fitting {
 public:
  Fitting(std::span<const FastGenProfile> heads, const FastGenCounts& counts, std::int32_t more)
      : rules(heads.size(), kEverything), heads_(heads), counts_(counts), more_(more) {}

  std::vector<FastGenRule> rules;

  std::int64_t Rows(std::size_t h, FastGenRule rule) const {
    return counts_.RowsAtEnd(rule, static_cast<std::int64_t>(heads_[h].rows[rule].size()), more_);
  }
  std::int64_t Total() const {
    std::int64_t total = 0;
    for (std::size_t h = 0; h < rules.size(); ++h) {
      total += Rows(h, rules[h]);
    }
    return total;
  }
  void Choose(double threshold) {
    for (std::size_t h = 0; h < rules.size(); ++h) {
      rules[h] = std::min(heads_[h].First(threshold), kLocal);
    }
  }

 private:
  std::span<const FastGenProfile> heads_;
  const FastGenCounts& counts_;
  std::int32_t more_;
};

}  // namespace

std::vector<FastGenRule> FitRules(std::span<const FastGenProfile> heads,
                                  const FastGenCounts& counts, double threshold, std::int64_t rows,
                                  std::int32_t more) {
  Fitting fit(heads, counts, more);
  if (fit.Total() <= rows) {
    return fit.rules;
  }
  std::vector<double> thresholds = {threshold};
  for (const FastGenProfile& head : heads) {
    std::ranges::copy_if(head.recovery, std::back_inserter(thresholds),
                         [&](double r) { return r < threshold; });
  }
  std::ranges::sort(thresholds, std::greater<>());
  thresholds.push_back(0);
  for (std::size_t i = 0; i < thresholds.size(); ++i) {
    fit.Choose(thresholds[i]);
    if (fit.Total() <= rows) {
      break;
    }
  }
  std::vector<std::size_t> order(heads.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t h) { return heads[h].recovery[kLocal]; });
  std::int64_t left = rows - fit.Total();
  for (const std::size_t h : order) {
    const std::int64_t cost = fit.Rows(h, kEverything) - fit.Rows(h, fit.rules[h]);
    if (heads[h].recovery[kLocal] < threshold && cost <= left) {
      fit.rules[h] = kEverything;
      left -= cost;
    }
  }
  return fit.rules;
}

List LiveUnderRule(const HeadDecode& in, FastGenRule rule, const FastGenCounts& counts,
                   const SlotSums& slots) {
  if (rule == kEverything) {
    return slots.live;
  }
  List fixed;  // kept for what they are
  List marks;
  std::vector<float> average(slots.sums);
  for (const std::int32_t slot : slots.live) {
    const std::int32_t position = in.rows.Position(slot);
    average[static_cast<std::size_t>(slot)] /= static_cast<float>(in.position - position + 1);
    const FastGenRule kind = RuleOf(position, counts.sinks, in.classes);
    if (kind == kSpecialRows) {
      fixed.push_back(slot);
    } else if (kind == kPunctuation && rule >= kPunctuation) {
      marks.push_back(slot);
    }
  }
  fixed = Merge(fixed, BestSlots(std::move(marks), counts.PunctuationRows(), average));
  if (rule < kFrequent) {
    return fixed;
  }
  List held = fixed;
  List words;
  for (const std::int32_t slot : slots.live) {
    const bool local = rule == kLocal && in.position - in.rows.Position(slot) < counts.local;
    if (!std::ranges::binary_search(fixed, slot)) {
      (local ? held : words).push_back(slot);
    }
  }
  std::ranges::sort(held);
  return Merge(held, BestSlots(std::move(words), counts.FrequentRows(fixed.size()), average));
}

}  // namespace rkv::policy
