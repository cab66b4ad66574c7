// BusyWatch: CPU time that others took, and the hypervisor withheld, while something was timed.
#ifndef RKV_BENCH_BUSY_WATCH_H_
#define RKV_BENCH_BUSY_WATCH_H_

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rkv::bench {

// Clock ticks of some CPUs since boot.
struct CpuTicks {
  double busy = 0;   // user, nice, system, interrupts
  double steal = 0;  // a virtual CPU wanted to run and could not
};

// Ticks of the listed CPUs (all when empty) from the text of /proc/stat; nullopt when it has none.
// Pure.
std::optional<CpuTicks> ParseProcStat(std::string_view text, std::span<const int> cpus);

// Ticks of a process and of its children that have ended, from the text of /proc/<pid>/stat;
// nullopt when it is malformed. Pure.
std::optional<double> ParseProcessTicks(std::string_view text);

// Where BusyWatch looks: files of /proc and the clock, or a test's own.
struct BusySource {
  std::function<std::string(const std::string& path)> read;
  std::function<double()> seconds;
};

// Adds up the phases between Begin and End. Of the CPUs that this process may use. Linux only:
// elsewhere everything is 0. Not thread-safe.
class BusyWatch {
 public:
  BusyWatch();
  explicit BusyWatch(BusySource source);

  // `child_cpu_seconds`: CPU time so far of living children that belong to us.
  void Begin(double child_cpu_seconds);
  void End(double child_cpu_seconds);

  // CPU time of other processes, and stolen time, in CPUs: 1.0 is one core all the time.
  double others() const;
  double steal() const;

  // One line for each of the two that is worth a warning; empty on a quiet machine.
  std::vector<std::string> Warnings() const;

 private:
  struct Moment {
    CpuTicks machine;
    double own = 0;  // ticks
    double children = 0;
    double seconds = 0;
  };
  Moment Now(double child_cpu_seconds) const;

  BusySource source_;
  std::vector<int> cpus_;
  double ticks_per_second_;
  Moment begin_;
  double others_seconds_ = 0;
  double steal_seconds_ = 0;
  double seconds_ = 0;
};

// CPU seconds of a living process; 0 when it cannot be read.
double ProcessCpuSeconds(int pid);

}  // namespace rkv::bench

#endif  // RKV_BENCH_BUSY_WATCH_H_
