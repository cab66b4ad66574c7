// A prefill with its progress on one line of the terminal.
#ifndef RKV_CLI_PROGRESS_H_
#define RKV_CLI_PROGRESS_H_

#include <span>
#include <string>

#include "cli/console.h"
#include "rkv/engine.h"

namespace rkv::cli {

// "prefill  42% [########------------]  512 tok/s  ETA 0:12", at most 70 columns. `seconds` since
// the start. The rate counts finished work over all layers as prompt tokens.
std::string FormatProgress(const PrefillProgress& progress, double seconds);

// Engine::Prefill that Ctrl-C cancels; shows progress while standard error is a terminal and leaves
// no trace of it. Errors: those of Prefill.
Status PrefillWithProgress(Engine& engine, std::span<Session* const> sessions,
                           std::span<const Token> prompt, Console& console);

}  // namespace rkv::cli

#endif  // RKV_CLI_PROGRESS_H_
