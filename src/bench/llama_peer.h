// LlamaPeer: libllama on the same file, ids and threads, with full caches.
#ifndef RKV_BENCH_LLAMA_PEER_H_
#define RKV_BENCH_LLAMA_PEER_H_

#include <memory>
#include <string>
#include <vector>

#include "bench/peer.h"
#include "bench/racer.h"
#include "bench/token_feed.h"
#include "rkv/status.h"

namespace rkv::bench {

// Names that PeerOptions::settings may hold: "default", "fa0", "fa1", "fa1-q8_0" (flash attention
// off and on, with q8_0 keys and values; f16 else).
std::vector<std::string> LlamaPeerSettings();

// Opens libllama with its default batch sizes and without extra buffer types (its AMX path crashes
// on some machines). "default" is flash attention AUTO, which is the same as one of the others: it
// is that row which gets Setting::is_default. `feed` must outlive the racer. Errors: kDataLoss when
// libllama cannot load the file, kResourceExhausted when it makes no context.
Result<std::unique_ptr<Racer>> OpenLlamaPeer(const PeerOptions& options, const TokenFeed& feed,
                                             const StopCheck& stop);

}  // namespace rkv::bench

#endif  // RKV_BENCH_LLAMA_PEER_H_
