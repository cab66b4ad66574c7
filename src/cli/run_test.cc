#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>

#include "cli/signals.h"
#include "cli/testing/command_runner.h"

namespace rkv::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

std::vector<std::string> Keys(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) {
    keys.push_back(key);
  }
  return keys;
}

TEST(Run, PutsTheDocumentBeforeTheQuestion) {
  CommandRunner r;
  const TestFile document("Once.\n");
  const Outcome o =
      r.Run({"run", "m.gguf", "-f", document.path(), "-p", "When?", "-sys", "Short."});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "Hello world\n");
  EXPECT_THAT(r.script.prompts, ElementsAre("[system]Short.[user]Once.\n\nWhen?"));
  EXPECT_THAT(o.err, HasSubstr("KV kept               250 B (25.0%)"));
}

TEST(Run, TakesStandardInputAsDocument) {
  CommandRunner r;
  r.input = "From a pipe";
  EXPECT_EQ(r.Run({"run", "m.gguf", "-f", "-"}).code, 0);
  EXPECT_THAT(r.script.prompts, ElementsAre("[user]From a pipe"));
}

TEST(Run, RawTextHasNoTemplateAndNoControlTokens) {
  CommandRunner r;
  r.input = "A, B";
  EXPECT_EQ(r.Run({"run", "m.gguf", "--raw", "-f", "-", "-p", ", C"}).code, 0);
  EXPECT_THAT(r.script.prompts, ElementsAre("<bos>A, B, C"));
}

TEST(Run, PlansNoMoreTokensThanTheContextHolds) {
  CommandRunner r;
  r.script.context = 100;
  EXPECT_EQ(r.Run({"run", "m.gguf", "-p", "12345678901234"}).code, 0);  // [user] + 14
  EXPECT_EQ(r.Run({"run", "m.gguf", "-p", "hi", "-n", "7"}).code, 0);
  r.script.context = 4096;
  EXPECT_EQ(r.Run({"run", "m.gguf", "-p", "hi", "-n", "-1"}).code, 0);
  ASSERT_EQ(r.script.sessions.size(), 3U);
  EXPECT_EQ(r.script.sessions[0].max_new_tokens, 80);
  EXPECT_EQ(r.script.sessions[1].max_new_tokens, 7);
  EXPECT_EQ(r.script.sessions[2].max_new_tokens, 1024);
  EXPECT_EQ(r.script.generates[2].max_tokens, std::numeric_limits<std::int32_t>::max());
}

TEST(Run, ZeroTokensOnlyPrefill) {
  CommandRunner r;
  EXPECT_EQ(r.Run({"run", "m.gguf", "-p", "hi", "-n", "0"}).out, "");
  EXPECT_EQ(r.script.prompts.size(), 1U);
  EXPECT_TRUE(r.script.generates.empty());
}

TEST(Run, PassesTheSeedOrDrawsOne) {
  CommandRunner r;
  EXPECT_EQ(r.Run({"run", "m.gguf", "-p", "hi", "-s", "42"}).code, 0);
  EXPECT_EQ(r.script.generates.back().sampler.seed, 42U);
  EXPECT_EQ(r.Run({"run", "m.gguf", "-p", "hi"}).code, 0);
  const std::uint64_t first = r.script.generates.back().sampler.seed;
  EXPECT_EQ(r.Run({"run", "m.gguf", "-p", "hi"}).code, 0);
  EXPECT_NE(r.script.generates.back().sampler.seed, first);  // equal once in 2^32 runs
}

TEST(Run, JsonHasEveryFieldInOrder) {
  CommandRunner r;
  r.script.warnings = {"dense"};
  const Outcome o = r.Run({"run", "m.gguf", "-p", "hi", "--json", "-v", "-s", "5"});
  ASSERT_EQ(o.code, 0) << o.err;
  const Json json = Json::parse(o.out);
  EXPECT_THAT(Keys(json), ElementsAre("text", "model", "policy", "prompt_tokens",
                                      "generated_tokens", "stop_reason", "prefill", "decode", "kv",
                                      "stages", "memory", "settings", "warnings", "tokens"));
  EXPECT_THAT(Keys(json["kv"]),
              ElementsAre("bytes_full", "bytes_kept", "bytes_index", "bytes_parked", "bytes_peak",
                          "bytes_layer", "tokens_kept", "tokens_read_per_step",
                          "bytes_read_per_step", "dense_share"));
  EXPECT_THAT(Keys(json["memory"]), ElementsAre("weights_bytes", "packed_bytes", "scratch_bytes",
                                                "rss_bytes", "rss_peak_bytes", "rss_file_bytes"));
  EXPECT_THAT(Keys(json["settings"]), ElementsAre("threads", "context", "kv_type", "compute",
                                                  "repack", "piece_tokens", "seed"));
  EXPECT_EQ(json["text"], "Hello world");
  EXPECT_EQ(json["model"], "m.gguf");
  EXPECT_EQ(json["policy"], "rocketkv:budget=1024,spelled=out");
  EXPECT_EQ(json["prompt_tokens"], 8);
  EXPECT_EQ(json["generated_tokens"], 3);
  EXPECT_EQ(json["stop_reason"], "end_of_generation");
  EXPECT_DOUBLE_EQ(json["prefill"]["tokens_per_second"], 4.0);
  EXPECT_DOUBLE_EQ(json["decode"]["tokens_per_second"], 2.0);
  EXPECT_EQ(json["memory"]["scratch_bytes"], 16);
  EXPECT_GT(json["memory"]["rss_bytes"], 0);
  EXPECT_EQ(json["settings"]["seed"], 5);
  EXPECT_EQ(json["stages"]["prefill.linear"], 1.5);
  EXPECT_EQ(json["warnings"], Json::array({"dense"}));
  EXPECT_EQ(json["tokens"], Json::array({5, 4, 2}));
  EXPECT_THAT(o.err, HasSubstr("warning: dense\n"));
}

TEST(Run, JsonSurvivesTextThatIsNotUtf8) {
  CommandRunner r;
  r.script.answers = {{"a\xff"}};
  const Outcome o = r.Run({"run", "m.gguf", "-p", "hi", "--json"});
  EXPECT_EQ(Json::parse(o.out)["text"], "a\xef\xbf\xbd");
}

TEST(Run, ComparesFromOnePrefill) {
  CommandRunner r;
  r.script.answers = {{"first"}, {"second"}};
  const Outcome o = r.Run({"run", "m.gguf", "-p", "hi", "--compare", "full"});
  EXPECT_EQ(o.out, "== rocketkv:budget=1024 ==\nfirst\n== full ==\nsecond\n");
  EXPECT_THAT(r.script.prefill_sessions, ElementsAre(2U));
  EXPECT_EQ(r.script.generates[0].sampler.seed, r.script.generates[1].sampler.seed);
  EXPECT_THAT(o.err, HasSubstr("rocketkv:budget=1024          full\n"));
}

TEST(Run, ComparesInJsonAsAList) {
  CommandRunner r;
  r.script.answers = {{"first"}, {"second"}};
  const Outcome o = r.Run({"run", "m.gguf", "-p", "hi", "--compare", "full", "--json"});
  const Json json = Json::parse(o.out);
  ASSERT_EQ(json["runs"].size(), 2U);
  EXPECT_EQ(json["runs"][0]["text"], "first");
  EXPECT_EQ(json["runs"][1]["policy"], "full,spelled=out");
  EXPECT_FALSE(json["runs"][0].contains("tokens"));
}

TEST(Run, ChecksMethodsBeforeTheModelIsOpened) {
  CommandRunner r;
  const Outcome kv = r.Run({"run", "m.gguf", "-p", "hi", "--kv", "bogus"});
  EXPECT_EQ(kv.code, 2);
  EXPECT_EQ(kv.err, "rkv: error: --kv: no such method\n");
  const Outcome compare = r.Run({"run", "m.gguf", "-p", "hi", "--compare", "bogus"});
  EXPECT_EQ(compare.code, 2);
  EXPECT_THAT(compare.err, HasSubstr("--compare"));
  EXPECT_EQ(r.script.opened.model_path, "");
}

TEST(Run, AnswersOneForWhatDependsOnFilesOrTheModel) {
  CommandRunner r;
  EXPECT_EQ(r.Run({"run", "m.gguf", "-f", "/no/such/file"}).code, 1);
  const Outcome no_model = r.Run({"run", "-p", "hi"});
  EXPECT_EQ(no_model.code, 1);
  EXPECT_THAT(no_model.err, HasSubstr("scripts/setup"));
  r.script.prefill_status = Status(Code::kInvalidArgument, "prompt of 9 tokens\ncontext 4");
  const Outcome too_long = r.Run({"run", "m.gguf", "-p", "hi"});
  EXPECT_EQ(too_long.code, 1);
  EXPECT_EQ(too_long.err, "rkv: error: prompt of 9 tokens context 4\n");
  r.script.open_status = Status(Code::kDataLoss, "cut short");
  EXPECT_EQ(r.Run({"run", "m.gguf", "-p", "hi"}).err, "rkv: error: m.gguf: cut short\n");
}

TEST(Run, WarnsAboutSettingsThatCannotHelp) {
  CommandRunner r;
  const Outcome o = r.Run({"run", "m.gguf", "-p", "hi", "-t", "4096", "-tb", "3"});
  EXPECT_EQ(o.code, 0);
  EXPECT_THAT(o.err, StartsWith("warning: 4096 threads on "));
  EXPECT_THAT(o.err, HasSubstr("warning: -tb 3 has no effect"));
}

TEST(Run, ExplainsUsageOnTheRightStream) {
  CommandRunner r;
  const Outcome none = r.Run({});
  EXPECT_EQ(none.code, 2);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, HasSubstr("Usage: rkv COMMAND"));
  const Outcome help = r.Run({"help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.out, none.err);
  EXPECT_EQ(r.Run({"--version"}).out, "rkv 1.2.3\n");
  EXPECT_EQ(r.Run({"rub"}).err, "rkv: error: there is no command 'rub'; did you mean run?\n");
}

class Interrupt : public ::testing::Test {
 protected:
  Interrupt() {
    ClearInterrupt();  // and catch the next Ctrl-C
  }
  ~Interrupt() override { ClearInterrupt(); }
};

TEST_F(Interrupt, CancelsThePrefill) {
  CommandRunner r;
  r.script.during_prefill = [] { std::raise(SIGINT); };
  const Outcome o = r.Run({"run", "m.gguf", "-p", "hi"});
  EXPECT_EQ(o.code, 130);
  EXPECT_EQ(o.out, "");
  EXPECT_EQ(o.err, "");
}

TEST_F(Interrupt, KeepsThePartOfTheAnswerThatWasMade) {
  CommandRunner r;
  r.script.during_generate = [] { std::raise(SIGINT); };
  const Outcome o = r.Run({"run", "m.gguf", "-p", "hi"});
  EXPECT_EQ(o.code, 130);
  EXPECT_EQ(o.out, "Hello wor\n");
}

TEST_F(Interrupt, PrintsNoHalfJson) {
  CommandRunner r;
  r.script.during_generate = [] { std::raise(SIGINT); };
  const Outcome o = r.Run({"run", "m.gguf", "-p", "hi", "--json"});
  EXPECT_EQ(o.code, 130);
  EXPECT_EQ(o.out, "");
}

TEST(RunOutput, AFullDiskIsAnError) {
  CommandRunner r;
  r.out_fd = open("/dev/full", O_WRONLY);
  ASSERT_GE(r.out_fd, 0);
  const Outcome o = r.Run({"run", "m.gguf", "-p", "hi"});
  close(r.out_fd);
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.err, "rkv: error: cannot write to stdout: No space left on device\n");
}

TEST(RunOutput, AReaderThatLeftEndsTheRunQuietly) {
  InstallSignalHandlers();
  int pipe_fds[2];
  ASSERT_EQ(pipe(pipe_fds), 0);
  close(pipe_fds[0]);
  CommandRunner r;
  r.out_fd = pipe_fds[1];
  const Outcome o = r.Run({"run", "m.gguf", "-p", "hi"});
  close(pipe_fds[1]);
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.err, "");
}

}  // namespace
}  // namespace rkv::cli
