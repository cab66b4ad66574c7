#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/signals.h"
#include "cli/testing/command_runner.h"

namespace rkv::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

TEST(Chat, KeepsOneSessionForAllTurns) {
  CommandRunner r;
  r.input = "one\n\n  \ntwo\r\nthree";
  r.script.answers = {{"A1"}, {"A2\n"}, {"A3"}};
  const Outcome o = r.Run({"chat", "m.gguf", "-sys", "S"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "A1\nA2\nA3\n");
  EXPECT_EQ(r.script.sessions.size(), 1U);
  EXPECT_THAT(r.script.prompts,
              ElementsAre("[system]S[user]one", "(after A1)[user]two", "(after A2\n)[user]three"));
  EXPECT_THAT(o.err, HasSubstr("generated             3 tokens"));  // of all three answers
}

TEST(Chat, EndsWithTheInput) {
  CommandRunner r;
  const Outcome o = r.Run({"chat", "m.gguf"});
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.out + o.err, "");
}

TEST(Chat, JoinsTheDocumentToTheFirstMessageOnly) {
  CommandRunner r;
  const TestFile document("Doc");
  r.input = "q1\nq2\n";
  EXPECT_EQ(r.Run({"chat", "m.gguf", "-f", document.path()}).code, 0);
  EXPECT_EQ(r.script.prompts[0], "[user]Doc\n\nq1");
  EXPECT_THAT(r.script.prompts[1], ::testing::EndsWith("[user]q2"));
}

TEST(Chat, ObeysItsCommands) {
  CommandRunner r;
  r.input = "/stats\nhi\n/stats\n/quit\nnever asked\n";
  const Outcome o = r.Run({"chat", "m.gguf", "--json"});
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(r.script.prompts.size(), 1U);
  EXPECT_THAT(o.err, HasSubstr("tokens kept           64.0"));
  EXPECT_EQ(o.err.find("method"),
            o.err.rfind("method"));  // nothing to tell before the first answer
}

TEST(Chat, PrintsAnObjectPerTurn) {
  CommandRunner r;
  r.input = "one\ntwo\n";
  const Outcome o = r.Run({"chat", "m.gguf", "--json", "-s", "9"});
  std::istringstream lines(o.out);
  std::vector<Json> turns;
  for (std::string line; std::getline(lines, line);) {
    turns.push_back(Json::parse(line));
  }
  ASSERT_EQ(turns.size(), 2U);
  EXPECT_EQ(turns[0]["prompt_tokens"], 9);   // [user]one
  EXPECT_EQ(turns[1]["prompt_tokens"], 28);  // of this turn: (after Hello world)[user]two
  EXPECT_EQ(turns[1]["generated_tokens"], 3);
  EXPECT_DOUBLE_EQ(turns[1]["prefill"]["seconds"], 2.0);
  EXPECT_EQ(turns[0]["settings"]["seed"], 9);
  EXPECT_EQ(turns[1]["settings"]["seed"], 10);
  EXPECT_EQ(o.err, "");
}

TEST(Chat, PrintsAWarningOnce) {
  CommandRunner r;
  r.script.warnings = {"dropped"};
  r.input = "one\ntwo\nthree\n";
  const Outcome o = r.Run({"chat", "m.gguf", "--json"});
  EXPECT_EQ(o.code, 0);
  EXPECT_EQ(o.err, "warning: dropped\n");
}

TEST(Chat, SaysWhenTheContextIsFull) {
  CommandRunner r;
  r.script.context = 20;
  r.input = "one\ntwo\n";
  const Outcome o = r.Run({"chat", "m.gguf"});
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.out, "Hello world\n");
  EXPECT_THAT(o.err, HasSubstr("the context is full"));
  EXPECT_THAT(o.err, HasSubstr("do not fit 20"));
}

TEST(Chat, EndsWhenAnAnswerFillsTheContext) {
  CommandRunner r;
  r.script.stop_reason = StopReason::kContextFull;
  r.input = "one\ntwo\n";
  const Outcome o = r.Run({"chat", "m.gguf"});
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.out, "Hello world\n");
  EXPECT_THAT(o.err, HasSubstr("context of 4096 tokens is full"));
}

TEST(Chat, RefusesAMessageThatIsNotUtf8) {
  CommandRunner r;
  r.input = "ab\xff\n";
  const Outcome o = r.Run({"chat", "m.gguf"});
  EXPECT_EQ(o.code, 1);
  EXPECT_THAT(o.err, HasSubstr("not UTF-8 at byte 2"));
}

TEST(Chat, EndsOnCtrlCWithoutATerminal) {
  ClearInterrupt();
  CommandRunner r;
  r.input = "one\ntwo\n";
  r.script.during_generate = [] { std::raise(SIGINT); };
  const Outcome o = r.Run({"chat", "m.gguf"});
  ClearInterrupt();
  EXPECT_EQ(o.code, 130);
  EXPECT_EQ(o.out, "Hello wor\n");
}

}  // namespace
}  // namespace rkv::cli
