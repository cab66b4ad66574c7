// Standard input, output and error of a command.
#ifndef RKV_CLI_CONSOLE_H_
#define RKV_CLI_CONSOLE_H_

#include <optional>
#include <string>
#include <string_view>

#include "rkv/status.h"

namespace rkv::cli {

// An unbuffered file descriptor: text appears as it is made. Does not own the descriptor.
class Output {
 public:
  explicit Output(int fd);

  // Writes all of `text`. After a failure every call returns false without trying again. False
  // without an error() means that Ctrl-C came while the reader was not reading.
  bool Write(std::string_view text);

  // errno of the first failure, 0 for none.
  int error() const { return error_; }
  // Whether a terminal that understands cursor movement shows this.
  bool terminal() const { return terminal_; }

 private:
  int fd_;
  bool terminal_;
  int error_ = 0;
};

// Lines of a file descriptor.
class LineInput {
 public:
  explicit LineInput(int fd);

  // The next line without its end ("\n" or "\r\n"); nullopt at the end of the input. A last line
  // without an end counts. Errors: kCancelled on Ctrl-C, kDataLoss when reading fails.
  Result<std::optional<std::string>> Next();

  bool terminal() const { return terminal_; }
  int fd() const { return fd_; }

 private:
  std::string TakeLine(std::size_t end);

  int fd_;
  bool terminal_;
  bool ended_ = false;
  std::string buffer_;
};

struct Console {
  LineInput in;
  Output out;
  Output err;
};

// One line on standard error: "rkv: error: …", "warning: …".
void PrintError(Console& console, std::string_view message);
void PrintWarning(Console& console, std::string_view message);

// Prints a failed call and returns the exit code: kExitInterrupted, silently, after Ctrl-C;
// kExitError silently when standard output is what failed (Finish reports that); else kExitError.
int Fail(Console& console, const Status& status);

// The exit code of a command that ended with `code`, once standard output is known to be complete:
// a full disk is reported; a reader that went away is not worth a word.
int Finish(Console& console, int code);

}  // namespace rkv::cli

#endif  // RKV_CLI_CONSOLE_H_
