#include "bench/busy_watch.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/clock.h"

namespace rkv::bench {
namespace {

// Below these it is the system's housekeeping.
constexpr double kOthersWorthAWarning = 0.15;
constexpr double kStealWorthAWarning = 0.03;

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The numbers of a line, until something else comes.
std::vector<double> Numbers(std::string_view text) {
  std::vector<double> numbers;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (*at == ' ') {
      ++at;
      continue;
    }
    double value = 0;
    const auto [stop, error] = std::from_chars(at, end, value);
    if (error != std::errc()) {
      break;
    }
    numbers.push_back(value);
    at = stop;
  }
  return numbers;
}

std::vector<int> UsableCpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) {
        cpus.push_back(cpu);
      }
    }
  }
  return cpus;
}

// The CPU of a line "cpu3 1 2 3 …", -1 for any other line.
int CpuOfLine(std::string_view line) {
  int cpu = -1;
  if (line.starts_with("cpu")) {
    std::from_chars(line.data() + 3, line.data() + line.size(), cpu);
  }
  return cpu;
}

}  // namespace

std::optional<CpuTicks> ParseProcStat(std::string_view text, std::span<const int> cpus) {
  CpuTicks ticks;
  bool found = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const int cpu = CpuOfLine(line);
    if (cpu < 0 || (!cpus.empty() && std::ranges::find(cpus, cpu) == cpus.end())) {
      continue;
    }
    // user nice system idle iowait irq softirq steal; guest time is part of user
    const std::vector<double> n = Numbers(line.substr(std::min(line.find(' '), line.size())));
    if (n.size() < 8) {
      continue;
    }
    ticks.busy += n[0] + n[1] + n[2] + n[5] + n[6];
    ticks.steal += n[7];
    found = true;
  }
  return found ? std::optional(ticks) : std::nullopt;
}

std::optional<double> ParseProcessTicks(std::string_view text) {
  // "pid (name) state …": the name may hold anything, also ") ".
  const std::size_t name_end = text.rfind(") ");
  if (name_end == std::string_view::npos || name_end + 4 > text.size()) {
    return std::nullopt;
  }
  const std::vector<double> n = Numbers(text.substr(name_end + 3));
  constexpr std::size_t kUserTime = 10;  // field 14 of proc(5); these numbers begin with field 4
  if (n.size() < kUserTime + 4) {
    return std::nullopt;
  }
  return n[kUserTime] + n[kUserTime + 1] + n[kUserTime + 2] + n[kUserTime + 3];
}

BusyWatch::BusyWatch() : BusyWatch({ReadFile, NowSeconds}) {}

BusyWatch::BusyWatch(BusySource source)
    : source_(std::move(source)),
      cpus_(UsableCpus()),
      ticks_per_second_(static_cast<double>(sysconf(_SC_CLK_TCK))) {}

BusyWatch::Moment BusyWatch::Now(double child_cpu_seconds) const {
  return {ParseProcStat(source_.read("/proc/stat"), cpus_).value_or(CpuTicks{}),
          ParseProcessTicks(source_.read("/proc/self/stat")).value_or(0), child_cpu_seconds,
          source_.seconds()};
}

void BusyWatch::Begin(double child_cpu_seconds) { begin_ = Now(child_cpu_seconds); }

void BusyWatch::End(double child_cpu_seconds) {
  const Moment end = Now(child_cpu_seconds);
  const double busy = (end.machine.busy - begin_.machine.busy) / ticks_per_second_;
  const double ours = (end.own - begin_.own) / ticks_per_second_ + end.children - begin_.children;
  others_seconds_ += busy - ours;  // may be below 0 by a tick; phases even that out
  steal_seconds_ += (end.machine.steal - begin_.machine.steal) / ticks_per_second_;
  seconds_ += end.seconds - begin_.seconds;
}

double BusyWatch::others() const {
  return seconds_ > 0 ? std::max(others_seconds_ / seconds_, 0.0) : 0;
}

double BusyWatch::steal() const {
  return seconds_ > 0 ? std::max(steal_seconds_ / seconds_, 0.0) : 0;
}

std::vector<std::string> BusyWatch::Warnings() const {
  std::vector<std::string> warnings;
  if (others() >= kOthersWorthAWarning) {
    warnings.push_back(
        fmt::format("other processes kept {:.0f}% of a core busy while this was timed: figures are "
                    "too low, ratios uncertain",
                    100 * others()));
  }
  if (steal() >= kStealWorthAWarning) {
    warnings.push_back(
        fmt::format("the hypervisor withheld {:.0f}% of a core while this was timed (steal time)",
                    100 * steal()));
  }
  return warnings;
}

double ProcessCpuSeconds(int pid) {
  const std::optional<double> ticks =
      ParseProcessTicks(ReadFile(fmt::format("/proc/{}/stat", pid)));
  return ticks.value_or(0) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace rkv::bench
