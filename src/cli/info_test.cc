#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/testing/command_runner.h"

namespace rkv::cli {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

TEST(Info, TellsWhatAMethodWouldKeep) {
  CommandRunner r;
  const Outcome o = r.Run({"info", "m.gguf", "--kv", "rocketkv:budget=64"});
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_THAT(o.out, HasSubstr("llama, 2 layers"));
  EXPECT_THAT(o.out, HasSubstr("1.00 MiB at the trained context of 4096 tokens"));
  EXPECT_THAT(o.out, HasSubstr("rocketkv:budget=64,spelled=out, prompt of 4096 tokens"));
}

TEST(Info, HasTheSameInJson) {
  CommandRunner r;
  const Outcome o = r.Run({"info", "-m", "m.gguf", "--json"});
  const Json json = Json::parse(o.out);
  EXPECT_EQ(json["architecture"], "llama");
  EXPECT_EQ(json["kv_bytes_full"], 256 * 4096);
  EXPECT_EQ(json["plan"]["kv_bytes_kept"], 100);
  EXPECT_EQ(json["plan"]["scratch_bytes"], 8192);
  EXPECT_EQ(json["settings"]["threads"], 2);
}

TEST(Info, FailsWithoutAModel) {
  CommandRunner r;
  r.script.open_status = Status(Code::kNotFound, "m.gguf: no such file");
  const Outcome o = r.Run({"info", "m.gguf"});
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.err, "rkv: error: m.gguf: no such file\n");
}

TEST(Policies, ListsMethodsWithTheirOptions) {
  CommandRunner r;
  EXPECT_THAT(r.Run({"policies"}).out, HasSubstr("full\n  keeps   everything\n"));
  EXPECT_THAT(r.Run({"policies"}).out, HasSubstr("size=7"));
  const Json json = Json::parse(r.Run({"policies", "--json"}).out);
  EXPECT_EQ(json["policies"][0]["name"], "full");
  EXPECT_EQ(json["policies"][0]["options"][0]["default"], "7");
}

}  // namespace
}  // namespace rkv::cli
