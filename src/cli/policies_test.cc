#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/testing/command_runner.h"

namespace rkv::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

TEST(Policies, ListsMethodsWithTheirOptions) {
  CommandRunner r;
  EXPECT_THAT(r.Run({"policies"}).out, AllOf(HasSubstr("full"), HasSubstr("size=7")));
  EXPECT_EQ(Json::parse(r.Run({"policies", "--json"}).out)["policies"][0]["name"], "full");
  EXPECT_TRUE(r.explained.empty());
}

TEST(Policies, ExplainsAMethodBesideFullKv) {
  CommandRunner r;
  const Outcome o = r.Run({"policies", "--explain", "rocketkv:budget=512", "--context", "1000"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, StartsWith("rocketkv:budget=512,spelled=out\n"
                                "context 1000: prompt 744, answer 256; 32 layers, 8 KV heads of "
                                "128, groups of 4, f16\n"));
  EXPECT_THAT(o.out, HasSubstr("  c                   2.5\n  topk                512\n"));
  EXPECT_THAT(o.out, HasSubstr("rows held             100.0 (10.0%)           1000.0\n"));
  EXPECT_THAT(o.out, HasSubstr("KV read per step      9.77 KiB (10.0%)        97.7 KiB\n"));
  EXPECT_EQ(r.script.opened.model_path, "");  // no model was needed
}

TEST(Policies, ExplainsInJson) {
  CommandRunner r;
  const Outcome o = r.Run({"policies", "--explain", "rocketkv", "-n", "5", "--json"});
  ASSERT_EQ(o.code, 0) << o.err;
  const Json json = Json::parse(o.out);
  EXPECT_EQ(json["policy"], "rocketkv,spelled=out");
  EXPECT_TRUE(json["model"].is_null());
  EXPECT_EQ(json["shape"], (Json{{"context", 32768},
                                 {"prompt_tokens", 32763},
                                 {"max_new_tokens", 5},
                                 {"layers", 32},
                                 {"kv_heads", 8},
                                 {"group", 4},
                                 {"head_dim", 128},
                                 {"kv_type", "f16"}}));
  EXPECT_EQ(json["numbers"], (Json{{"c", 2.5}, {"topk", 512.0}}));
  for (const char* field :
       {"rows_held", "rows_read", "rows_estimate", "bytes_held", "bytes_index", "bytes_read"}) {
    EXPECT_TRUE(json[field].is_number() && json["full"][field].is_number()) << field;
  }
  EXPECT_DOUBLE_EQ(json["full"]["bytes_held"], 3276800);
}

TEST(Policies, ExplainsForTheShapeOfAModel) {
  CommandRunner r;
  EXPECT_EQ(r.Run({"policies", "--explain", "rocketkv", "-m", "m.gguf"}).code, 0);
  EXPECT_EQ(r.script.opened.model_path, "m.gguf");
  EXPECT_FALSE(r.script.opened.repack);  // nothing will be computed
  EXPECT_EQ(r.explained.back().context, 4096);
  EXPECT_EQ(r.explained.back().layers, 2);
  EXPECT_EQ(r.explained.back().group, 2);
  // More than the model was trained for is fine: these are numbers only.
  const Outcome o = r.Run({"policies", "--explain", "rocketkv", "-m", "m.gguf", "-c", "99999",
                           "-ctk", "q8", "-n", "-1", "--json"});
  EXPECT_EQ(Json::parse(o.out)["model"], "m.gguf");
  EXPECT_EQ(r.script.opened.context, 0);
  EXPECT_EQ(r.explained.back().context, 99999);
  EXPECT_EQ(r.explained.back().kv_type, KvType::kQ8);
  EXPECT_EQ(r.explained.back().max_new_tokens, 1024);
}

TEST(Policies, NamesFlagsAndValuesThatCannotBeExplained) {
  CommandRunner r;
  const Outcome method = r.Run({"policies", "--explain", "bogus"});
  EXPECT_EQ(method.code, 2);
  EXPECT_EQ(method.err, "rkv: error: --explain: no such method\n");
  r.explain_status = Status(Code::kInvalidArgument, "max_new_tokens must be from 1 to 99, got 256");
  const Outcome lengths = r.Run({"policies", "--explain", "full", "-c", "100"});
  EXPECT_EQ(lengths.code, 2);
  EXPECT_EQ(lengths.out, "");
  EXPECT_EQ(lengths.err,
            "rkv: error: --ctx-size 100, --predict 256: max_new_tokens must be from 1 to 99, got "
            "256\n");
  EXPECT_EQ(r.Run({"policies", "--explain", "full", "-ctk", "q8", "-ctv", "f16"}).code, 2);
  r.script.open_status = Status(Code::kNotFound, "no such file");
  EXPECT_EQ(r.Run({"policies", "--explain", "full", "-m", "m.gguf"}).code, 1);
}

}  // namespace
}  // namespace rkv::cli
