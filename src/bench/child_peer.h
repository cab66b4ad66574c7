// ChildPeer: an engine in a process of its own that is asked for one timing at a time, so that it
// takes its turn like the others. bench/openvino_peer.py describes the lines.
#ifndef RKV_BENCH_CHILD_PEER_H_
#define RKV_BENCH_CHILD_PEER_H_

#include <memory>
#include <string>
#include <vector>

#include "bench/peer.h"
#include "bench/racer.h"
#include "bench/token_feed.h"
#include "rkv/status.h"

namespace rkv::bench {

// Names that PeerOptions::settings may hold for bench/openvino_peer.py.
std::vector<std::string> OpenVinoSettings();

// Starts options.command (interpreter, script) under the name `engine`. The depth is computed anew
// for every timing, unless the engine caches prefixes. `feed` must outlive the racer.
// Errors: kNotFound when the interpreter or the script is missing, kInternal for what the child
// reports, such as a package that is not installed.
Result<std::unique_ptr<Racer>> OpenChildPeer(const std::string& engine, const PeerOptions& options,
                                             const TokenFeed& feed, const StopCheck& stop);

}  // namespace rkv::bench

#endif  // RKV_BENCH_CHILD_PEER_H_
