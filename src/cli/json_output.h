// The JSON objects of --json; docs/cli.md describes their fields. Keys keep their order; text that
// is not UTF-8 gets U+FFFD.
#ifndef RKV_CLI_JSON_OUTPUT_H_
#define RKV_CLI_JSON_OUTPUT_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cli/report.h"
#include "rkv/engine.h"

namespace rkv::cli {

// One answer on one line, for JSON lines. `with_tokens` adds the list of generated ids.
std::string ReportJsonLine(const Report& report, bool with_tokens);
// The answers of each method, over several lines: {"runs": [...]} for more than one method. A
// method's only answer stands for itself, more are {"answers": [...]} with their prompts.
std::string RunJson(std::span<const std::vector<Report>> runs, bool with_tokens);

// Facts of a model and the memory of one prompt.
struct ModelReport {
  ModelInfo model;
  EngineOptions settings;
  std::string policy;       // spelled out
  std::int32_t tokens = 0;  // that the plan is for
  MemoryPlan plan;
};
std::string ModelJson(const ModelReport& report);

// What --explain prints.
struct Explanation {
  std::string model;  // the file whose shape it is; empty: none
  ExplainShape shape;
  PolicyNumbers method;
  PolicyNumbers full;  // Full-KV at the same shape
};
std::string ExplanationJson(const Explanation& explanation);

std::string PoliciesJson(const std::vector<PolicyDescription>& policies);

}  // namespace rkv::cli

#endif  // RKV_CLI_JSON_OUTPUT_H_
