// Check: aborts on a broken invariant of our own code, never on input.
#ifndef RKV_BASE_CHECK_H_
#define RKV_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>

namespace rkv {

[[noreturn]] inline void CheckFailed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: internal check failed: %s\n", file, line, what);
  std::abort();
}

// Aborts with file, line and `what` when `ok` is false. A function, not a macro.
inline void Check(bool ok, const char* what, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (!ok) {
    CheckFailed(what, file, line);
  }
}

}  // namespace rkv

#endif  // RKV_BASE_CHECK_H_
