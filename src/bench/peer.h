// What every peer is told, and the list of those that there are.
#ifndef RKV_BENCH_PEER_H_
#define RKV_BENCH_PEER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/racer.h"
#include "bench/token_feed.h"
#include "rkv/status.h"

namespace rkv::bench {

struct PeerOptions {
  std::string model_path;
  int threads = 1;
  std::int32_t context = 0;           // tokens that a cache must hold
  std::vector<std::string> settings;  // names to run; empty: all of the peer's
  std::uint64_t weight_bytes = 0;     // that one token reads; 0: the peer knows better
  double kv_numbers_per_token = 0;    // keys and values of one token, all layers
  std::vector<std::string> command;   // of a peer that is a child process
};

// A peer that can be asked for by name. `open`: errors are those of the peer; the feed must outlive
// the racer.
struct PeerKind {
  std::string name;
  std::vector<std::string> settings;  // names that PeerOptions::settings may hold
  bool child = false;                 // runs PeerOptions::command
  std::function<Result<std::unique_ptr<Racer>>(const PeerOptions& options, const TokenFeed& feed,
                                               const StopCheck& stop)>
      open;
};

}  // namespace rkv::bench

#endif  // RKV_BENCH_PEER_H_
