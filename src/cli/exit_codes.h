// What the process answers to its shell.
#ifndef RKV_CLI_EXIT_CODES_H_
#define RKV_CLI_EXIT_CODES_H_

namespace rkv::cli {

constexpr int kExitOk = 0;
constexpr int kExitError = 1;          // depends on files, the model or the machine
constexpr int kExitUsage = 2;          // the command line alone shows it
constexpr int kExitInterrupted = 130;  // Ctrl-C, as shells count it: 128 + SIGINT

}  // namespace rkv::cli

#endif  // RKV_CLI_EXIT_CODES_H_
