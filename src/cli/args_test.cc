#include "cli/args.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "cli/flags.h"

namespace rkv::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Env = std::map<std::string, std::string>;

Result<Options> Parse(const std::vector<std::string>& args, const Env& env = {}) {
  return ParseArgs(args, [&env](const char* name) -> const char* {
    const auto found = env.find(name);
    return found == env.end() ? nullptr : found->second.c_str();
  });
}

Options Ok(const std::vector<std::string>& args, const Env& env = {}) {
  const Result<Options> options = Parse(args, env);
  EXPECT_TRUE(options) << (options ? "" : options.error().message());
  return options ? *options : Options();
}

std::string Error(const std::vector<std::string>& args, const Env& env = {}) {
  const Result<Options> options = Parse(args, env);
  EXPECT_FALSE(options);
  return options ? "" : options.error().message();
}

TEST(ParseArgs, HasLlamaCppsDefaults) {
  const Options o = Ok({"run", "-p", "hi"});
  EXPECT_EQ(o.command, Command::kRun);
  EXPECT_EQ(o.policy, "rocketkv:budget=1024");
  EXPECT_EQ(o.generate.max_tokens, 256);
  EXPECT_FLOAT_EQ(o.generate.sampler.temperature, 0.8F);
  EXPECT_EQ(o.generate.sampler.top_k, 40);
  EXPECT_FLOAT_EQ(o.generate.sampler.top_p, 0.95F);
  EXPECT_FLOAT_EQ(o.generate.sampler.min_p, 0.05F);
  EXPECT_FLOAT_EQ(o.generate.sampler.repeat_penalty, 1.0F);
  EXPECT_EQ(o.generate.sampler.repeat_last_n, 64);
  EXPECT_TRUE(o.random_seed);
  EXPECT_EQ(o.engine.context, 0);
  EXPECT_EQ(o.engine.threads, 0);
  EXPECT_EQ(o.engine.piece_tokens, 1024);
}

TEST(ParseArgs, ReadsEveryGenerationFlag) {
  const Options o = Ok({"run",         "-p",
                        "hi",          "-n",
                        "-1",          "-s",
                        "7",           "--temp",
                        "0",           "--top-k",
                        "1",           "--top-p",
                        "0.5",         "--min-p",
                        "0",           "--repeat-penalty",
                        "1.1",         "--repeat-last-n",
                        "-1",          "-r",
                        "A",           "--reverse-prompt=B",
                        "--ignore-eos"});
  EXPECT_EQ(o.generate.max_tokens, -1);
  EXPECT_FALSE(o.random_seed);
  EXPECT_EQ(o.generate.sampler.seed, 7U);
  EXPECT_FLOAT_EQ(o.generate.sampler.temperature, 0.0F);
  EXPECT_EQ(o.generate.sampler.top_k, 1);
  EXPECT_FLOAT_EQ(o.generate.sampler.top_p, 0.5F);
  EXPECT_FLOAT_EQ(o.generate.sampler.min_p, 0.0F);
  EXPECT_FLOAT_EQ(o.generate.sampler.repeat_penalty, 1.1F);
  EXPECT_EQ(o.generate.sampler.repeat_last_n, -1);
  EXPECT_THAT(o.generate.stop, ElementsAre("A", "B"));
  EXPECT_TRUE(o.generate.ignore_eos);
}

TEST(ParseArgs, ReadsEngineFlagsAndTheirAliases) {
  const Options o = Ok({"chat",        "-m",   "a.gguf",    "--max-model-len",
                        "4096",        "-t",   "4",         "-tb",
                        "4",           "-ub",  "64",        "-b",
                        "2048",        "-ctk", "bf16",      "-ctv",
                        "bf16",        "-fa",  "--compute", "f32",
                        "--mem-limit", "1.5G", "-sys",      "Be brief.",
                        "-v"});
  EXPECT_EQ(o.engine.model_path, "a.gguf");
  EXPECT_EQ(o.engine.context, 4096);
  EXPECT_EQ(o.engine.threads, 4);
  EXPECT_EQ(o.engine.piece_tokens, 64);
  EXPECT_EQ(o.engine.kv_type, KvType::kBf16);
  EXPECT_EQ(o.engine.compute, Compute::kF32);
  EXPECT_EQ(o.engine.memory_limit, std::size_t{3} << 29);
  EXPECT_EQ(o.system, "Be brief.");
  EXPECT_TRUE(o.verbose);
}

TEST(ParseArgs, TakesFlashAttentionWithAndWithoutAValue) {
  EXPECT_THAT(Ok({"run", "-fa", "off", "-p", "hi"}).prompts, ElementsAre("hi"));
  EXPECT_THAT(Ok({"run", "-fa", "-p", "hi"}).prompts, ElementsAre("hi"));
  EXPECT_THAT(Ok({"run", "--flash-attn=auto", "-p", "hi"}).prompts, ElementsAre("hi"));
  EXPECT_THAT(Error({"run", "--flash-attn=maybe", "-p", "hi"}), HasSubstr("'maybe'"));
}

TEST(ParseArgs, LeavesValuesAloneThatLookLikeFlags) {
  EXPECT_THAT(Ok({"run", "-p", "-sys"}).prompts, ElementsAre("-sys"));
  EXPECT_THAT(Ok({"run", "-p", "--help"}).prompts, ElementsAre("--help"));
  EXPECT_THAT(Ok({"run", "-p", "[a,b]"}).prompts, ElementsAre("[a,b]"));
  EXPECT_THAT(Ok({"run", "--prompt=", "-f", "x"}).prompts, ElementsAre(""));
  EXPECT_EQ(Ok({"run", "-p", "hi", "-n5"}).generate.max_tokens, 5);
}

TEST(ParseArgs, TakesSeveralQuestions) {
  EXPECT_THAT(Ok({"run", "-p", "a", "--prompt", "b", "-p", "a"}).prompts,
              ElementsAre("a", "b", "a"));
  EXPECT_THAT(Ok({"run", "-f", "x"}).prompts, ElementsAre());
  EXPECT_THAT(Error({"chat", "-p", "a"}), HasSubstr("no flag -p"));
}

TEST(ParseArgs, TakesABareModelFile) {
  EXPECT_EQ(Ok({"run", "x.gguf", "-p", "hi"}).engine.model_path, "x.gguf");
  EXPECT_EQ(Ok({"run", "-p", "hi", "--", "-x.gguf"}).engine.model_path, "-x.gguf");
  EXPECT_EQ(Ok({"info", "model.bin"}).engine.model_path, "model.bin");
  EXPECT_THAT(Error({"run", "x.gguf", "-m", "y.gguf", "-p", "hi"}), HasSubstr("more than once"));
  EXPECT_THAT(Error({"run", "doc.txt"}), HasSubstr("'doc.txt' belongs to no flag"));
}

TEST(ParseArgs, PrefersArgumentsThenRkvThenLlamaVariables) {
  const Env env = {{"RKV_THREADS", "3"},           {"LLAMA_ARG_THREADS", "2"},
                   {"LLAMA_ARG_CTX_SIZE", "2048"}, {"LLAMA_ARG_UBATCH", "128"},
                   {"RKV_IGNORE_EOS", "enabled"},  {"RKV_TEMP", ""}};
  const Options o = Ok({"run", "-p", "hi"}, env);
  EXPECT_EQ(o.engine.threads, 3);
  EXPECT_EQ(o.engine.context, 2048);
  EXPECT_EQ(o.engine.piece_tokens, 128);
  EXPECT_TRUE(o.generate.ignore_eos);
  EXPECT_FLOAT_EQ(o.generate.sampler.temperature, 0.8F);
  EXPECT_EQ(Ok({"run", "-p", "hi", "-t", "1"}, env).engine.threads, 1);
}

TEST(ParseArgs, ReadsLlamaVariablesOnlyForLlamaFlags) {
  const Options o = Ok({"run", "-p", "hi"}, {{"LLAMA_ARG_KV", "x"}, {"LLAMA_ARG_JSON", "1"}});
  EXPECT_EQ(o.policy, "rocketkv:budget=1024");
  EXPECT_FALSE(o.json);
  EXPECT_EQ(Ok({"run", "-p", "hi"}, {{"RKV_KV", "full"}}).policy, "full");
}

TEST(ParseArgs, NamesTheVariableWithABadValue) {
  EXPECT_THAT(Error({"run", "-p", "hi"}, {{"LLAMA_ARG_THREADS", "many"}}),
              HasSubstr("LLAMA_ARG_THREADS: 'many'"));
}

TEST(ParseArgs, NamesFlagValueAndRange) {
  EXPECT_THAT(Error({"run", "-p", "hi", "--top-p", "1.5"}),
              HasSubstr("--top-p: '1.5' is not a number from 1e-06 to 1"));
  EXPECT_THAT(Error({"run", "-p", "hi", "-n", "1e3"}), HasSubstr("--predict: '1e3'"));
  EXPECT_THAT(Error({"run", "-p", "hi", "-n", "-2"}), HasSubstr("from -1"));
  EXPECT_THAT(Error({"run", "-p", "hi", "--temp", "nan"}), HasSubstr("'nan'"));
  EXPECT_THAT(Error({"run", "-p", "hi", "-b", "0"}), HasSubstr("1 to 65536"));
  EXPECT_THAT(Error({"run", "-p", "hi", "--mem-limit", "12Q"}), HasSubstr("'12Q'"));
  EXPECT_THAT(Error({"run", "-p", "hi", "-ctk", "q4_0"}), HasSubstr("'q4_0'"));
  EXPECT_THAT(Error({"run", "-p", "\xff"}), HasSubstr("not UTF-8 at byte 0"));
  EXPECT_THAT(Error({"run", "-p"}), HasSubstr("-p needs a value"));
  EXPECT_THAT(Error({"run", "-p", "hi", "--json=1"}), HasSubstr("takes no value"));
}

TEST(ParseArgs, SuggestsTheNearestFlagOrCommand) {
  EXPECT_THAT(Error({"run", "--ctx-sise", "1"}), HasSubstr("did you mean --ctx-size?"));
  EXPECT_THAT(Error({"run", "-temp", "1"}), HasSubstr("did you mean --temp?"));
  EXPECT_THAT(Error({"polices"}), HasSubstr("did you mean policies?"));
  EXPECT_THAT(Error({"xyzzy"}), HasSubstr("there are run, chat, info"));
  EXPECT_THAT(Error({"-p", "hi"}), HasSubstr("a command comes first"));
}

TEST(ParseArgs, RefusesWhatDoesNotGoTogether) {
  EXPECT_THAT(Error({"run"}), HasSubstr("nothing to answer"));
  EXPECT_THAT(Error({"run", "-p", ""}), HasSubstr("nothing to answer"));
  EXPECT_THAT(Error({"run", "-f", "a", "-f", "b"}), HasSubstr("--file is given more than once"));
  EXPECT_THAT(Error({"run", "-p", "a", "-p", ""}), HasSubstr("--prompt: one of several"));
  EXPECT_THAT(Error({"run", "-p", "a", "-ctk", "f32"}), HasSubstr("differ"));
  EXPECT_THAT(Error({"run", "-p", "a", "--raw", "-sys", "b"}), HasSubstr("--raw"));
  EXPECT_THAT(Error({"chat", "-f", "-"}), HasSubstr("standard input"));
  EXPECT_THAT(Error({"chat", "--compare", "full"}), HasSubstr("no flag --compare"));
}

TEST(ParseArgs, FindsHelpAndVersion) {
  EXPECT_EQ(Ok({}).command, Command::kNone);
  EXPECT_EQ(Ok({"--version"}).command, Command::kVersion);
  EXPECT_EQ(Ok({"--help"}).command, Command::kHelp);
  EXPECT_EQ(Ok({"help"}).help_topic, Command::kNone);
  EXPECT_EQ(Ok({"help", "chat"}).help_topic, Command::kChat);
  EXPECT_EQ(Ok({"run", "-h"}).help_topic, Command::kRun);
}

TEST(HelpText, ListsEveryFlagOfACommand) {
  const std::string help = HelpText(Command::kRun);
  for (const Flag& flag : Flags()) {
    if ((flag.commands & In(Command::kRun)) != 0) {
      EXPECT_THAT(help, HasSubstr(std::string(flag.names)));
      EXPECT_THAT(help, HasSubstr(std::string(flag.help)));
      EXPECT_THAT(help, HasSubstr(std::string(flag.alias)));
    }
  }
}

TEST(Flags, AreNamedOnceInACommand) {
  for (const Command command : {Command::kRun, Command::kChat, Command::kInfo, Command::kPolicies,
                                Command::kBench, Command::kCalibrate}) {
    std::map<std::string, int> seen;
    for (const Flag& flag : Flags()) {
      if ((flag.commands & In(command)) == 0) {
        continue;
      }
      ++seen[std::string(LongName(flag))];
      if (!flag.alias.empty()) {
        ++seen[std::string(flag.alias)];
      }
    }
    for (const auto& [name, count] : seen) {
      EXPECT_EQ(count, 1) << name;
    }
  }
}

}  // namespace
}  // namespace rkv::cli
