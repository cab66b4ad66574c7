// The binary rkv: the command line on top of the public API.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "bench/child_peer.h"
#include "bench/llama_peer.h"
#include "bench/stream_probe.h"
#include "cli/commands.h"
#include "cli/signals.h"
#include "rkv/engine.h"

namespace {

// A closed standard descriptor would be given to the next file that is opened, and our output would
// go there. Opened the wrong way round it stays unusable and still reports an error.
void OccupyClosedDescriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY) != fd) {
      std::_Exit(1);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  OccupyClosedDescriptors();
  rkv::cli::InstallSignalHandlers();
  rkv::cli::Console console = {rkv::cli::LineInput(STDIN_FILENO), rkv::cli::Output(STDOUT_FILENO),
                               rkv::cli::Output(STDERR_FILENO)};
  const rkv::cli::EngineApi api = {
      .open = rkv::Engine::Open,
      .check_policy = rkv::CheckPolicy,
      .describe_policies = rkv::DescribePolicies,
      .explain_policy = rkv::ExplainPolicy,
      .open_shape = rkv::Engine::OpenShape,
      .known_shapes = rkv::KnownShapes(),
      .peers = {{"llama.cpp", rkv::bench::LlamaPeerSettings(), false, rkv::bench::OpenLlamaPeer},
                {"openvino", rkv::bench::OpenVinoSettings(), true,
                 [](const auto& options, const auto& feed, const auto& stop) {
                   return rkv::bench::OpenChildPeer("openvino", options, feed, stop);
                 }}},
      .probe_bytes = rkv::bench::DramProbeBytes(),
      .version = rkv::Version(),
      .source_dir = RKV_SOURCE_DIR};
  const std::vector<std::string> args(argv + 1, argv + argc);
  return rkv::cli::Main(
      args, [](const char* name) { return std::getenv(name); }, api, console);
}
