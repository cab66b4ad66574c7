// Monotonic time for the statistics.
#ifndef RKV_BASE_CLOCK_H_
#define RKV_BASE_CLOCK_H_

#include <chrono>

namespace rkv {

// Seconds since an arbitrary fixed point; never goes back.
inline double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Adds the time from construction to destruction to `*seconds`.
class StageTimer {
 public:
  explicit StageTimer(double* seconds) : seconds_(seconds), start_(NowSeconds()) {}
  ~StageTimer() { *seconds_ += NowSeconds() - start_; }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  double* seconds_;
  double start_;
};

}  // namespace rkv

#endif  // RKV_BASE_CLOCK_H_
