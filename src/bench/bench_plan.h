// From the lists of the command line to the tests that are run, in llama-bench's order and names.
#ifndef RKV_BENCH_BENCH_PLAN_H_
#define RKV_BENCH_BENCH_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

namespace rkv::bench {

enum class Phase : std::uint8_t { kPrompt, kDecode };

// One test: `tokens` of a phase behind `depth` tokens.
struct Cell {
  Phase phase = Phase::kPrompt;
  std::int32_t tokens = 0;
  std::int32_t depth = 0;
};

struct PlanLists {
  std::vector<std::int32_t> prompt_tokens;  // 0: no such test
  std::vector<std::int32_t> decode_tokens;  // 0: no such test
  std::vector<std::int32_t> depths;
};

// Depths ascending, so that an engine can go on from the last one; in a depth the prompt tests,
// then the decode tests, each as listed. A value that is listed twice counts once. Pure.
std::vector<Cell> PlanCells(const PlanLists& lists);

// "pp512", "tg128 @ d4096". Pure.
std::string TestName(const Cell& cell);

// Tokens in the cache at the start: a decode test needs one at least. Pure.
std::int32_t StartDepth(const Cell& cell);

// Tokens that a cache must have room for: one more than any test has, as prompts leave one free for
// an answer. Pure.
std::int32_t ContextFor(const std::vector<Cell>& cells);

}  // namespace rkv::bench

#endif  // RKV_BENCH_BENCH_PLAN_H_
