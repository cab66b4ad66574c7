// ChildProcess: a program that answers lines with lines.
#ifndef RKV_BENCH_CHILD_PROCESS_H_
#define RKV_BENCH_CHILD_PROCESS_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/racer.h"
#include "rkv/status.h"

namespace rkv::bench {

// Its standard error goes to the null device, and Ctrl-C at the terminal does not reach it. The
// destructor closes its input and ends it if it does not end by itself. Not thread-safe.
// A caller must ignore SIGPIPE: writing to a child that has ended is an error then.
class ChildProcess {
 public:
  // Errors: kNotFound when the program, command[0], cannot be started. REQUIRES: not empty.
  static Result<std::unique_ptr<ChildProcess>> Start(const std::vector<std::string>& command);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Sends `line`, which has no newline, and waits for one line back. Errors: kCancelled when `stop`
  // says so while waiting; kInternal when the child has ended (names how).
  Result<std::string> Ask(std::string_view line, const StopCheck& stop);

  pid_t pid() const { return pid_; }

 private:
  ChildProcess(pid_t pid, int in, int out) : pid_(pid), in_(in), out_(out) {}
  Status Write(std::string_view text);
  Status Ended();

  pid_t pid_;
  int in_;   // what we write to
  int out_;  // what we read from
  bool reaped_ = false;
  std::string buffer_;
};

}  // namespace rkv::bench

#endif  // RKV_BENCH_CHILD_PROCESS_H_
