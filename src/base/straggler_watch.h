// StragglerWatch: which members of a team to leave out for a while, because somebody else's process
// holds their CPU.
#ifndef RKV_BASE_STRAGGLER_WATCH_H_
#define RKV_BASE_STRAGGLER_WATCH_H_

#include <cstddef>
#include <vector>

namespace rkv {

// A member that the system stops in the middle of a task keeps all others waiting for a time slice.
// Left out, it costs its own share of the work only. It comes back for a trial after a pause, which
// doubles while trials fail. Times in seconds on any one clock. Not thread-safe; O(1).
class StragglerWatch {
 public:
  static constexpr double kFirstPause = 0.01;
  static constexpr double kLongestPause = 0.64;
  // A member that was never late for this long starts anew with the first pause.
  static constexpr double kProbation = 0.1;

  explicit StragglerWatch(std::size_t members) : members_(members) {}

  // Whether the member takes part at `now`.
  bool TakesPart(std::size_t member, double now) const { return now >= members_[member].until; }

  // How long the others may wait for a member before it counts as late: many times what a task
  // takes on average, and longer than a wake-up.
  static double Patience(double mean_task) { return 300e-6 + 8 * mean_task; }

  // The member kept the others waiting beyond their patience.
  void Late(std::size_t member, double now) {
    Member& m = members_[member];
    const bool again = m.pause > 0 && now - m.until < kProbation;
    m.pause = again ? (m.pause * 2 < kLongestPause ? m.pause * 2 : kLongestPause) : kFirstPause;
    m.until = now + m.pause;
  }

 private:
  struct Member {
    double until = 0;  // takes part again from then on
    double pause = 0;  // the last one
  };
  std::vector<Member> members_;
};

}  // namespace rkv

#endif  // RKV_BASE_STRAGGLER_WATCH_H_
