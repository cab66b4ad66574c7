#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/bench_flags.h"
#include "cli/signals.h"
#include "cli/testing/command_runner.h"

namespace rkv::cli {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Json = nlohmann::ordered_json;

Outcome Bench(CommandRunner& r, std::vector<std::string> args) {
  args.insert(args.begin(), {"bench", "-m", "m.gguf", "-r", "2", "--no-warmup"});
  return r.Run(args);
}

Json BenchJson(CommandRunner& r, std::vector<std::string> args) {
  args.insert(args.end(), {"-o", "json"});
  const Outcome o = Bench(r, std::move(args));
  EXPECT_EQ(o.code, 0) << o.err;
  return Json::parse(o.out, nullptr, false);
}

std::vector<std::string> Column(const Json& json, const char* key) {
  std::vector<std::string> values;
  for (const Json& row : json["rows"]) {
    values.push_back(row[key]);
  }
  return values;
}

TEST(SplitMethods, TellsOptionsFromMethods) {
  EXPECT_THAT(*SplitMethods("full"), ElementsAre("full"));
  EXPECT_THAT(*SplitMethods("full,rocketkv:budget=512,window_size=16,hsa"),
              ElementsAre("full", "rocketkv:budget=512,window_size=16", "hsa"));
  EXPECT_THAT(*SplitMethods("rocketkv:budget=1;hsa:budget=2,topk=3"),
              ElementsAre("rocketkv:budget=1", "hsa:budget=2,topk=3"));
  EXPECT_THAT(SplitMethods("full,,hsa").error().message(), HasSubstr("empty method"));
  EXPECT_FALSE(SplitMethods(""));
}

TEST(Bench, TestsEveryMethodAtEveryDepth) {
  CommandRunner r;
  const Json json = BenchJson(r, {"-p", "16", "-n", "4", "-d", "0,32", "--kv", "full,rocketkv"});
  EXPECT_THAT(Column(json, "test"), ElementsAre("pp16", "pp16", "tg4", "tg4", "pp16 @ d32",
                                                "pp16 @ d32", "tg4 @ d32", "tg4 @ d32"));
  EXPECT_EQ(json["rows"][7]["kv"], "rocketkv");
  EXPECT_EQ(json["rows"][7]["depth"], 32);
  EXPECT_EQ(json["rows"][7]["kv_bytes_per_token"], 4096);
  EXPECT_GT(json["rows"][7]["ratio_to_full"], 0);
  EXPECT_GT(json["rows"][7]["roofline_share"], 0);
  EXPECT_TRUE(json["rows"][7]["ratio_to_peer"].is_null());
  EXPECT_TRUE(json["rows"][0]["roofline_share"].is_null());
  EXPECT_EQ(r.script.opened.context, 49);
  EXPECT_EQ(r.script.sessions.back().max_new_tokens, 4);
}

TEST(Bench, FillsAllMethodsFromOnePrefillAndRewinds) {
  CommandRunner r;
  BenchJson(r, {"-p", "0", "-n", "4", "-d", "32", "--kv", "full;rocketkv"});
  ASSERT_THAT(r.script.prefill_sessions, ElementsAre(2));
  EXPECT_EQ(r.script.prompts[0].size(), 32);
  ASSERT_THAT(r.script.decoded, SizeIs(16));  // 2 methods, 2 repetitions
  EXPECT_EQ(r.script.decoded[3], r.script.decoded[15]);
}

TEST(Bench, TakesIdsFromAText) {
  CommandRunner r;
  const TestFile text("abc");
  const Json json = BenchJson(r, {"-p", "7", "-n", "0", "-f", text.path()});
  EXPECT_EQ(r.script.prompts[0], "abcabca");
  EXPECT_EQ(json["header"]["tokens"], "ids of " + text.path());
}

TEST(Bench, PutsPeersNextToIt) {
  CommandRunner r;
  const Json json =
      BenchJson(r, {"-p", "0", "-n", "4", "--peer", "rival", "--peer-settings", "fast"});
  EXPECT_THAT(Column(json, "engine"), ElementsAre("rkv", "rkv", "rival"));
  EXPECT_THAT(json["header"]["peers"], ElementsAre("rival 1.0"));
  EXPECT_GT(json["rows"][0]["ratio_to_peer"], 1);  // the fake takes a second a token
  EXPECT_GT(json["rows"][0]["ratio_to_peer_default"], 1);
  EXPECT_EQ(json["rows"][2]["peer_best"], true);
  ASSERT_THAT(r.peers_opened, SizeIs(1));
  EXPECT_EQ(r.peers_opened[0].model_path, "m.gguf");
  EXPECT_EQ(r.peers_opened[0].threads, 2);
  EXPECT_EQ(r.peers_opened[0].context, 6);
  EXPECT_THAT(r.peers_opened[0].settings, ElementsAre("fast"));
  EXPECT_EQ(r.peers_opened[0].kv_numbers_per_token, 2 * 2 * 2 * 16);
}

TEST(Bench, RunsShapesWithoutAPrompt) {
  CommandRunner r;
  const Outcome o =
      r.Run({"bench", "--shape", "tiny", "-p", "0", "-n", "2", "-d", "64", "-r", "1"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(r.script.shape, "tiny");
  EXPECT_THAT(r.script.fills, ElementsAre(64));
  EXPECT_THAT(r.script.prompts, SizeIs(0));
}

TEST(Bench, HasFourFormats) {
  CommandRunner r;
  const std::vector<std::string> args = {"-p", "8", "-n", "2"};
  const auto with = [&](const char* format) {
    std::vector<std::string> all = args;
    all.insert(all.end(), {"-o", format});
    return Bench(r, all).out;
  };
  EXPECT_THAT(with("md"), HasSubstr("| rkv    | rocketkv:budget=1024 | 2       | tg2  |"));
  EXPECT_THAT(with("csv"), HasSubstr("\"m.gguf\","));
  std::istringstream lines(with("jsonl"));
  std::string line;
  std::vector<Json> objects;
  while (std::getline(lines, line)) {
    objects.push_back(Json::parse(line));
  }
  ASSERT_THAT(objects, SizeIs(5));
  EXPECT_EQ(objects[0]["header"]["version"], "1.2.3");
  EXPECT_EQ(objects[4]["test"], "tg2");
  EXPECT_EQ(Json::parse(with("json"))["rows"].size(), 4);
}

TEST(Bench, CsvHasAsManyCellsInEveryLine) {
  CommandRunner r;
  std::istringstream lines(Bench(r, {"-p", "8", "-n", "2", "--kv", "full", "-o", "csv"}).out);
  std::string line;
  std::vector<std::ptrdiff_t> commas;
  while (std::getline(lines, line)) {
    commas.push_back(std::count(line.begin(), line.end(), ','));
  }
  ASSERT_THAT(commas, SizeIs(3));
  EXPECT_THAT(commas, Each(commas[0]));
}

TEST(Bench, RefusesWhatTheCommandLineShowsToBeWrong) {
  CommandRunner r;
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"-p", "many"}, "--n-prompt: 'many'"},
      {{"-d", "1,-2"}, "--n-depth: '-2'"},
      {{"-r", "0"}, "--repetitions: '0'"},
      {{"-o", "xml"}, "md, json, csv or jsonl"},
      {{"-p", "0", "-n", "0"}, "nothing to time"},
      {{"--kv", "nosuch:budget=1"}, "--kv"},
      {{"--kv", "full,,"}, "--kv"},
      {{"--peer", "nobody"}, "'nobody' is not rival"},
      {{"--peer", "rival", "--peer-settings", "odd"}, "'odd' is none of fast, slow"},
      {{"--peer-settings", "fast"}, "needs --peer"},
      {{"--fill", "ones"}, "prompt or random"},
      {{"--shape", "tiny"}, "drop -m"},
  };
  for (const auto& [args, words] : cases) {
    const Outcome o = Bench(r, args);
    EXPECT_EQ(o.code, 2) << words;
    EXPECT_THAT(o.err, HasSubstr(words));
    EXPECT_EQ(o.out, "");
  }
  EXPECT_THAT(r.Run({"bench", "--shape", "odd"}).err, HasSubstr("'odd' is none of tiny, huge"));
}

TEST(Bench, ReportsAPeerThatCannotOpen) {
  CommandRunner r;
  r.peer_status = Status(Code::kNotFound, "not installed");
  const Outcome o = Bench(r, {"--peer", "rival"});
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.err, "rkv: error: --peer rival: not installed\n");
  EXPECT_EQ(o.out, "");
}

TEST(Bench, PrintsWhatWasMeasuredBeforeCtrlC) {
  CommandRunner r;
  InstallSignalHandlers();
  r.script.during_decode = [&r] {
    if (r.script.decoded.size() == 5) {  // in the second repetition
      std::raise(SIGINT);
    }
  };
  const Outcome o = Bench(r, {"-p", "0", "-n", "4", "--kv", "full"});
  ClearInterrupt();
  EXPECT_EQ(o.code, 130);
  EXPECT_THAT(o.out, HasSubstr("| tg4  |"));
  EXPECT_EQ(r.script.decoded.size(), 5U);
}

TEST(Bench, NamesTheContextThatTestsNeed) {
  CommandRunner r;
  r.script.open_status = Status(Code::kInvalidArgument, "context 5001 is above the model's 4096");
  const Outcome o = Bench(r, {"-p", "0", "-n", "1000", "-d", "4000"});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("above the model's 4096 (-d, -p and -n need a context of 5001"));
}

}  // namespace
}  // namespace rkv::cli
