#include "cli/console.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cli/exit_codes.h"
#include "cli/signals.h"

namespace rkv::cli {
namespace {

bool IsCapableTerminal(int fd) {
  const char* const term = std::getenv("TERM");
  return isatty(fd) == 1 && term != nullptr && std::strcmp(term, "dumb") != 0;
}

// For a descriptor that somebody else made non-blocking.
void WaitUntilWritable(int fd) {
  pollfd wait = {fd, POLLOUT, 0};
  poll(&wait, 1, -1);
}

std::string OneLine(std::string_view text) {
  std::string line(text);
  std::ranges::replace(line, '\n', ' ');
  return line;
}

}  // namespace

Output::Output(int fd) : fd_(fd), terminal_(IsCapableTerminal(fd)) {}

bool Output::Write(std::string_view text) {
  if (error_ != 0) {
    return false;
  }
  while (!text.empty()) {
    const ssize_t count = write(fd_, text.data(), text.size());
    if (count >= 0) {
      text.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      WaitUntilWritable(fd_);
    } else if (errno != EINTR) {
      error_ = errno;
      return false;
    }
    if (count < 0 && Interrupted()) {
      return false;
    }
  }
  return true;
}

LineInput::LineInput(int fd) : fd_(fd), terminal_(isatty(fd) == 1) {}

std::string LineInput::TakeLine(std::size_t end) {
  std::string line = buffer_.substr(0, end);
  buffer_.erase(0, std::min(end + 1, buffer_.size()));
  if (line.ends_with('\r')) {
    line.pop_back();
  }
  return line;
}

Result<std::optional<std::string>> LineInput::Next() {
  std::array<char, 4096> bytes;
  std::size_t searched = 0;
  while (true) {
    const std::size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos) {
      return std::optional(TakeLine(end));
    }
    searched = buffer_.size();
    if (ended_) {
      return buffer_.empty() ? std::nullopt : std::optional(TakeLine(buffer_.size()));
    }
    const ssize_t count = Interrupted() ? 0 : read(fd_, bytes.data(), bytes.size());
    if (Interrupted()) {
      return Status(Code::kCancelled, "interrupted");
    }
    if (count < 0 && errno != EINTR) {
      return Status(Code::kDataLoss,
                    fmt::format("cannot read standard input: {}", std::strerror(errno)));
    }
    if (count >= 0) {
      ended_ = count == 0;
      buffer_.append(bytes.data(), static_cast<std::size_t>(count));
    }
  }
}

void PrintError(Console& console, std::string_view message) {
  console.err.Write(fmt::format("rkv: error: {}\n", OneLine(message)));
}

void PrintWarning(Console& console, std::string_view message) {
  console.err.Write(fmt::format("warning: {}\n", OneLine(message)));
}

int Fail(Console& console, const Status& status) {
  if (Interrupted()) {
    return kExitInterrupted;
  }
  if (console.out.error() == 0) {
    PrintError(console, status.message());
  }
  return kExitError;
}

int Finish(Console& console, int code) {
  const int error = console.out.error();
  if (error == 0 || code == kExitInterrupted) {
    return code;
  }
  if (error != EPIPE) {
    PrintError(console, fmt::format("cannot write to stdout: {}", std::strerror(error)));
  }
  return kExitError;
}

}  // namespace rkv::cli
