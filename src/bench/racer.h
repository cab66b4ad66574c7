// Racer: an engine that is timed, in one or several settings. What bench_run interleaves.
#ifndef RKV_BENCH_RACER_H_
#define RKV_BENCH_RACER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "rkv/status.h"

namespace rkv::bench {

// Whether the user wants to stop; asked between steps.
using StopCheck = std::function<bool()>;

// One column of the contest: an engine in one of its configurations.
struct Setting {
  std::string engine = {};         // "rkv", "llama.cpp"
  std::string name = {};           // the engine's own switch, "fa1"; empty: it has none
  std::string kv = {};             // method string, or the type of a full cache
  bool peer = false;               // not ours
  bool is_default = false;         // what the peer does without flags
  std::uint64_t weight_bytes = 0;  // that one decoded token reads; 0: unknown
};

// One timed call.
struct Sample {
  double seconds = 0;
  double kv_bytes_per_token = 0;                // keys, values and estimate; 0: unknown
  std::map<std::string, double> stage_seconds;  // of these seconds; empty: not known
};

// Where a test begins.
struct Start {
  std::int32_t depth = 0;       // tokens in the cache
  std::int32_t new_tokens = 1;  // that will be decoded: methods plan for them
  friend bool operator==(const Start&, const Start&) = default;
};

// Not thread-safe. A call that fails leaves the racer unfit for further calls, kUnsupported
// excepted: then this setting cannot do this test.
class Racer {
 public:
  virtual ~Racer() = default;

  // Constant; at least one.
  virtual std::span<const Setting> settings() const = 0;

  // Brings every setting to `start`, not timed; does nothing where it stands there already.
  // Errors: kCancelled when the stop check said so; whatever the engine reports.
  virtual Status Fill(const Start& start) = 0;

  // Computes the next `tokens` ids of the prompt behind the depth. Afterwards the setting needs
  // Fill. Errors: as Fill; kUnsupported.
  virtual Result<Sample> TimePrompt(std::size_t setting, std::int32_t tokens) = 0;

  // Feeds `tokens` ids one by one and goes back to the depth. Errors: as TimePrompt.
  virtual Result<Sample> TimeDecode(std::size_t setting, std::int32_t tokens) = 0;

  // Name and version of what runs, for the record; empty: nothing to say.
  virtual std::string version() const { return {}; }

  // CPU seconds that processes of this racer have used besides this one's.
  virtual double child_cpu_seconds() const { return 0; }
};

}  // namespace rkv::bench

#endif  // RKV_BENCH_RACER_H_
