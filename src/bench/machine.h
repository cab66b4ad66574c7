// What the figures were measured on.
#ifndef RKV_BENCH_MACHINE_H_
#define RKV_BENCH_MACHINE_H_

#include <string>
#include <string_view>

namespace rkv::bench {

// "model name" of the text of /proc/cpuinfo, empty when there is none. Pure.
std::string ParseCpuName(std::string_view text);

// The CPU of this machine; "unknown CPU" when the system does not say.
std::string CpuName();

}  // namespace rkv::bench

#endif  // RKV_BENCH_MACHINE_H_
