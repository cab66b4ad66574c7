#include "cli/signals.h"

#include <atomic>
#include <csignal>

namespace rkv::cli {
namespace {

// The one global of the project: a signal handler has no argument through which to reach an object.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not take a lock");

void OnInterrupt(int /*signal*/) { interrupted.store(true); }

void CatchInterrupt() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // no SA_RESTART: a read returns EINTR
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace

void InstallSignalHandlers() {
  CatchInterrupt();
  std::signal(SIGPIPE, SIG_IGN);
}

bool Interrupted() { return interrupted.load(); }

void ClearInterrupt() {
  interrupted.store(false);
  CatchInterrupt();
}

}  // namespace rkv::cli
