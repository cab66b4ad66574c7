#include "cli/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "base/clock.h"
#include "cli/signals.h"

namespace rkv::cli {
namespace {

constexpr std::size_t kBarColumns = 20;
constexpr double kRedrawSeconds = 0.1;
constexpr double kMaxSeconds = 359999;  // 99:59:59, the most that the line has room for
constexpr const char* kEraseLine = "\r\x1b[K";

double DoneShare(const PrefillProgress& p) {
  if (p.layers <= 0 || p.tokens <= 0) {
    return 0;
  }
  const double layers = p.layer + static_cast<double>(p.tokens_done) / p.tokens;
  return std::clamp(layers / p.layers, 0.0, 1.0);
}

std::string FormatSeconds(double seconds) {
  const int whole = static_cast<int>(std::min(seconds, kMaxSeconds) + 0.5);
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

std::string FormatProgress(const PrefillProgress& progress, double seconds) {
  const double done = DoneShare(progress);
  const auto filled = static_cast<std::size_t>(done * kBarColumns);
  std::string line = fmt::format("prefill {:3.0f}% [{}{}]", std::min(done * 100, 100.0),
                                 std::string(filled, '#'), std::string(kBarColumns - filled, '-'));
  if (done > 0 && seconds > 0) {
    line += fmt::format("  {:.0f} tok/s  ETA {}", done * progress.tokens / seconds,
                        FormatSeconds(seconds * (1 - done) / done));
  }
  return line;
}

Status PrefillWithProgress(Engine& engine, std::span<Session* const> sessions,
                           std::span<const Token> prompt, Console& console) {
  const double start = NowSeconds();
  double drawn = start;
  bool visible = false;
  const Status status = engine.Prefill(sessions, prompt, [&](const PrefillProgress& progress) {
    const double now = NowSeconds();
    if (console.err.terminal() && now - drawn >= kRedrawSeconds) {
      console.err.Write(kEraseLine + FormatProgress(progress, now - start));
      drawn = now;
      visible = true;
    }
    return !Interrupted();
  });
  if (visible) {
    console.err.Write(kEraseLine);
  }
  return status;
}

}  // namespace rkv::cli
