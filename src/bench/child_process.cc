#include "bench/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/check.h"

extern char** environ;

namespace rkv::bench {
namespace {

constexpr int kPollMilliseconds = 50;
constexpr int kPatiencePolls = 40;  // two seconds for a child to end by itself

struct Pipe {
  int read = -1;
  int write = -1;
};

// Closed in the child unless it is made one of its standard streams.
bool MakePipe(Pipe& pipe) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) {
    return false;
  }
  pipe = {ends[0], ends[1]};
  return true;
}

int Spawn(const std::vector<std::string>& command, int in, int out, pid_t* pid) {
  std::vector<char*> argv;
  for (const std::string& word : command) {
    argv.push_back(const_cast<char*>(word.c_str()));
  }
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);  // Ctrl-C is for us
  const int error = posix_spawnp(pid, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

std::string HowItEnded(int status) {
  return WIFSIGNALED(status) ? fmt::format("was ended by signal {}", WTERMSIG(status))
                             : fmt::format("ended with code {}", WEXITSTATUS(status));
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::Start(const std::vector<std::string>& command) {
  Check(!command.empty(), "a child process without a command");
  Pipe to_child;
  Pipe from_child;
  if (!MakePipe(to_child)) {
    return Status(Code::kResourceExhausted, std::strerror(errno));
  }
  if (!MakePipe(from_child)) {
    const int error = errno;
    close(to_child.read);
    close(to_child.write);
    return Status(Code::kResourceExhausted, std::strerror(error));
  }
  pid_t pid = 0;
  const int error = Spawn(command, to_child.read, from_child.write, &pid);
  close(to_child.read);
  close(from_child.write);
  if (error != 0) {
    close(to_child.write);
    close(from_child.read);
    return Status(Code::kNotFound,
                  fmt::format("cannot start '{}': {}", command[0], std::strerror(error)));
  }
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, to_child.write, from_child.read));
}

ChildProcess::~ChildProcess() {
  close(in_);
  close(out_);
  for (int i = 0; !reaped_ && i < kPatiencePolls; ++i) {
    reaped_ = waitpid(pid_, nullptr, WNOHANG) == pid_;
    if (!reaped_) {
      usleep(kPollMilliseconds * 1000);
    }
  }
  if (!reaped_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

Status ChildProcess::Ended() {
  int status = 0;
  reaped_ = reaped_ || waitpid(pid_, &status, 0) == pid_;
  return {Code::kInternal, fmt::format("the process {}", HowItEnded(status))};
}

Status ChildProcess::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(in_, text.data(), text.size());
    if (count < 0 && errno != EINTR) {
      return Ended();
    }
    text.remove_prefix(count < 0 ? 0 : static_cast<std::size_t>(count));
  }
  return {};
}

Result<std::string> ChildProcess::Ask(std::string_view line, const StopCheck& stop) {
  const Status status = Write(fmt::format("{}\n", line));
  if (!status.ok()) {
    return status;
  }
  std::array<char, 4096> bytes;
  while (true) {
    const std::size_t end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string answer = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return answer;
    }
    if (stop()) {
      return Status(Code::kCancelled, "interrupted");
    }
    pollfd wait = {out_, POLLIN, 0};
    if (poll(&wait, 1, kPollMilliseconds) <= 0) {
      continue;
    }
    const ssize_t count = read(out_, bytes.data(), bytes.size());
    if (count == 0 || (count < 0 && errno != EINTR)) {
      return Ended();
    }
    buffer_.append(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
  }
}

}  // namespace rkv::bench
