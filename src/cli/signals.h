// Ctrl-C as a flag that callbacks look at.
#ifndef RKV_CLI_SIGNALS_H_
#define RKV_CLI_SIGNALS_H_

namespace rkv::cli {

// From now on the first Ctrl-C sets the flag and ends a blocking read; the second one kills the
// process as if nobody had caught it. A write to a closed pipe becomes an error instead of a death.
void InstallSignalHandlers();

// Whether Ctrl-C was pressed since the last ClearInterrupt.
bool Interrupted();

// Forgets the Ctrl-C and catches the next one again.
void ClearInterrupt();

}  // namespace rkv::cli

#endif  // RKV_CLI_SIGNALS_H_
