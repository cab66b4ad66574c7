// FastGen's five nested eviction rules, what they recover of a head's attention, and their choice.
#ifndef RKV_POLICY_FASTGEN_RULES_H_
#define RKV_POLICY_FASTGEN_RULES_H_

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "policy/attention_sums.h"
#include "policy/policy.h"

namespace rkv::policy {

// What a head keeps, in increasing cost; each has what the one before has. C1 to C5 of the paper.
enum FastGenRule : std::int32_t { kSpecialRows, kPunctuation, kFrequent, kLocal, kEverything };
inline constexpr std::size_t kFastGenRules = 5;

// Rows that the rules may hold.
struct FastGenCounts {
  std::int32_t sinks = 0;     // first tokens that count as special
  std::int32_t local = 1;     // last rows, the band of HeadPrefill::near_mass
  std::int32_t frequent = 0;  // rows with the most attention
  std::int32_t room = 0;      // of local, always kept and frequent rows together; 0: no limit

  // Punctuation rows that are kept for what they are: those with the most attention, up to a
  // quarter of the room, as they are every tenth of a text; the others are ordinary rows.
  std::int32_t PunctuationRows() const {
    return room > 0 ? room / 4 : std::numeric_limits<std::int32_t>::max();
  }
  // Frequent rows beside `fixed` that are always kept.
  std::int32_t FrequentRows(std::size_t fixed) const;
  // What a head holds at most once `more` words follow a prompt of which it kept `kept` rows: under
  // kLocal, rows that leave the window take the places of frequent rows within it.
  std::int64_t RowsAtEnd(FastGenRule rule, std::int64_t kept, std::int32_t more) const;
};

// One head after a prompt.
struct FastGenProfile {
  std::array<std::vector<std::int32_t>, kFastGenRules> rows;  // ascending, of those still live
  std::array<double, kFastGenRules> recovery{};  // R, ascending; the last is at least 1

  // The first rule with R >= threshold; kEverything where there is none.
  FastGenRule First(double threshold) const;
};

// R(C) = sum over queries i and rows j that C keeps for i of A[i][j], per query, mean of the group;
// for kLocal a query keeps the rows in its own band. O(rows). Policy specification 2.13.
FastGenProfile ProfileHead(const LayerPrefill& layer, const HeadPrefill& head,
                           const FastGenCounts& counts);

// The rules of these heads that hold at most `rows` rows together after `more` words. Everything
// where that fits. Else each head's first rule with R >= threshold, but kLocal where only
// kEverything has it (with lower thresholds if that does not fit, kSpecialRows at worst); then
// kEverything for heads whose kLocal misses the threshold, the least recovered first, as far as
// rows are left. Pure.
std::vector<FastGenRule> FitRules(std::span<const FastGenProfile> heads,
                                  const FastGenCounts& counts, double threshold, std::int64_t rows,
                                  std::int32_t more);

// The live slots that stay after a step: those that the rule always keeps, the local ones, and of
// the others the frequent ones, by attention per query that could see them. O(slots).
std::vector<std::int32_t> LiveUnderRule(const HeadDecode& in, FastGenRule rule,
                                        const FastGenCounts& counts, const SlotSums& slots);

}  // namespace rkv::policy

#endif  // RKV_POLICY_FASTGEN_RULES_H_
