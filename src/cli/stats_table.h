// The statistics block on standard error.
#ifndef RKV_CLI_STATS_TABLE_H_
#define RKV_CLI_STATS_TABLE_H_

#include <span>
#include <string>

#include "cli/report.h"

namespace rkv::cli {

// One column a report, headed by its method string; percentages are of Full-KV's bytes.
std::string StatsTable(std::span<const Report> reports);

// Seconds of each stage, most expensive first, one line each.
std::string StageTable(const Report& report);

}  // namespace rkv::cli

#endif  // RKV_CLI_STATS_TABLE_H_
