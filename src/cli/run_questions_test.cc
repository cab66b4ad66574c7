// rkv run with several questions: turns of one session.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "cli/signals.h"
#include "cli/testing/command_runner.h"

namespace rkv::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

TEST(RunQuestions, AreTurnsOfOneSession) {
  CommandRunner r;
  r.script.answers = {{"A1"}, {"A2\n"}, {"A3"}};
  const TestFile document("Doc");
  const Outcome o = r.Run({"run", "m.gguf", "-f", document.path(), "-p", "Q1", "-p", "Q2", "-p",
                           "two\nlines", "-s", "5"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out, "> Q1\nA1\n\n> Q2\nA2\n\n> two\n> lines\nA3\n");
  EXPECT_THAT(r.script.prompts,
              ElementsAre("[user]Doc\n\nQ1", "(after A1)[user]Q2", "(after A2\n)[user]two\nlines"));
  EXPECT_EQ(r.script.sessions.size(), 1U);
  EXPECT_EQ(r.script.generates[2].sampler.seed, 7U);
  EXPECT_THAT(o.err, HasSubstr("prompt                57 tokens"));  // of the whole session
  EXPECT_THAT(o.err, HasSubstr("generated             3 tokens"));
}

TEST(RunQuestions, OfRawTextAreSimplyAppended) {
  CommandRunner r;
  r.input = "A, B";
  EXPECT_EQ(r.Run({"run", "m.gguf", "--raw", "-f", "-", "-p", ", C", "-p", ", D"}).code, 0);
  EXPECT_THAT(r.script.prompts, ElementsAre("<bos>A, B, C", ", D"));
}

TEST(RunQuestions, CompareFromOnePrefillAndGoOnApart) {
  CommandRunner r;
  r.script.answers = {{"a1"}, {"b1"}, {"a2"}, {"b2"}};
  const Outcome o =
      r.Run({"run", "m.gguf", "-p", "Q1", "-p", "Q2", "--kv", "rocketkv", "--compare", "full"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_EQ(o.out,
            "> Q1\n== rocketkv ==\na1\n== full ==\nb1\n"
            "\n> Q2\n== rocketkv ==\na2\n== full ==\nb2\n");
  EXPECT_THAT(r.script.prefill_sessions, ElementsAre(2U, 1U, 1U));
  EXPECT_THAT(r.script.prompts,
              ElementsAre("[user]Q1", "(after a1)[user]Q2", "(after b1)[user]Q2"));
  EXPECT_EQ(r.script.generates[2].sampler.seed, r.script.generates[3].sampler.seed);
}

TEST(RunQuestions, AreAListInJson) {
  CommandRunner r;
  r.script.warnings = {"dropped"};
  r.script.answers = {{"first"}, {"sec", "ond"}};
  const Outcome o = r.Run({"run", "m.gguf", "-p", "Q1", "-p", "Q2", "--json", "-s", "5"});
  ASSERT_EQ(o.code, 0) << o.err;
  const Json json = Json::parse(o.out);
  EXPECT_EQ(json.size(), 1U);
  ASSERT_EQ(json["answers"].size(), 2U);
  const Json& second = json["answers"][1];
  EXPECT_EQ(second.items().begin().key(), "prompt");
  EXPECT_EQ(second["prompt"], "Q2");
  EXPECT_EQ(second["text"], "second");
  EXPECT_EQ(second["prompt_tokens"], 21);  // of this turn: (after first)[user]Q2
  EXPECT_EQ(second["generated_tokens"], 2);
  EXPECT_DOUBLE_EQ(second["prefill"]["seconds"], 2.0);
  EXPECT_EQ(second["settings"]["seed"], 6);
  EXPECT_EQ(json["answers"][0]["warnings"], Json::array({"dropped"}));
  EXPECT_EQ(second["warnings"], Json::array());
  EXPECT_EQ(o.err, "warning: dropped\n");  // once
}

TEST(RunQuestions, AreAListOfEachMethodInJson) {
  CommandRunner r;
  r.script.answers = {{"a1"}, {"b1"}, {"a2"}, {"b2"}};
  const Outcome o =
      r.Run({"run", "m.gguf", "-p", "Q1", "-p", "Q2", "--compare", "full", "--json", "-v"});
  const Json runs = Json::parse(o.out)["runs"];
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0]["answers"][1]["text"], "a2");
  EXPECT_EQ(runs[1]["answers"][0]["text"], "b1");
  EXPECT_EQ(runs[1]["answers"][1]["policy"], "full,spelled=out");
  EXPECT_TRUE(runs[1]["answers"][1].contains("tokens"));
}

TEST(RunQuestions, NameTheOneThatFailed) {
  CommandRunner r;
  r.script.answers = {{"A1"}};
  r.script.during_generate = [&r] {
    r.script.prefill_status = Status(Code::kInvalidArgument, "does not fit");
  };
  const Outcome o = r.Run({"run", "m.gguf", "-p", "Q1", "-p", "Q2"});
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.out, "> Q1\nA1\n");
  EXPECT_EQ(o.err, "rkv: error: --prompt 'Q2': does not fit\n");
  r.script.prefill_status = {};
  EXPECT_EQ(r.Run({"run", "m.gguf", "-p", "Q1", "-p", "Q2", "--json"}).out, "");  // no half JSON
}

TEST(RunQuestions, EndAtCtrlC) {
  ClearInterrupt();
  CommandRunner r;
  r.script.during_generate = [] { std::raise(SIGINT); };
  const Outcome o = r.Run({"run", "m.gguf", "-p", "Q1", "-p", "Q2"});
  ClearInterrupt();
  EXPECT_EQ(o.code, 130);
  EXPECT_EQ(o.out, "> Q1\nHello wor\n");
  EXPECT_EQ(o.err, "");
}

TEST(RunQuestions, OneHasNoHeading) {
  CommandRunner r;
  EXPECT_THAT(r.Run({"run", "m.gguf", "-p", "Q1"}).out, Not(HasSubstr(">")));
}

}  // namespace
}  // namespace rkv::cli
