#include "model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/rng.h"
#include "support/gguf_builder.h"
#include "support/tiny_gguf.h"

namespace rkv::model {
namespace {

using rkv::testing::ByteWriter;
using rkv::testing::GgufBuilder;
using rkv::testing::TinyGguf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A small file: two keys, two tensors.
GgufBuilder Small() {
  GgufBuilder out;
  const std::vector<float> values(12, 1.0f);
  out.U32("a.count", 7).String("a.name", "x");
  out.FloatTensor("one", {4}, std::span(values).first(4));
  out.FloatTensor("two", {4, 3}, values);
  return out;
}

// Parses a copy that ends exactly where the bytes end, so that ASan sees any read beyond.
Status Parse(std::span<const std::byte> bytes) {
  const std::vector<std::byte> exact(bytes.begin(), bytes.end());
  const Result<GgufFile> file = ParseGguf(exact);
  return file ? Status() : file.error();
}

TEST(ParseGguf, ReadsKeysAndTensors) {
  GgufBuilder builder = Small();
  builder.I32("neg", -3).F32("float", 0.5f).Bool("yes", true);
  builder.Strings("words", {"one", "", "three"});
  builder.Numbers<std::int32_t>("numbers", 5, {1, 2});
  const std::vector<std::byte> bytes = builder.Build();
  const Result<GgufFile> file = ParseGguf(bytes);
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->version, 3u);
  EXPECT_EQ(*GetInt(*file, "a.count"), 7);
  EXPECT_EQ(*GetInt(*file, "neg"), -3);
  EXPECT_EQ(*GetFloat(*file, "float"), 0.5);
  EXPECT_EQ(*GetString(*file, "a.name"), "x");
  EXPECT_TRUE(std::get<bool>(*file->FindValue("yes")));
  EXPECT_THAT(std::get<GgufArray>(*file->FindValue("words")).strings,
              ElementsAre("one", "", "three"));
  EXPECT_EQ(std::get<GgufArray>(*file->FindValue("numbers")).bytes.size(), 8u);
  const GgufTensor* two = file->FindTensor("two");
  ASSERT_NE(two, nullptr);
  EXPECT_THAT(two->dims, ElementsAre(4, 3));
  EXPECT_EQ(two->bytes, 48u);
  EXPECT_EQ(two->data.data() - bytes.data(),
            static_cast<std::ptrdiff_t>(builder.BuildHeader().size() + 31) / 32 * 32 + 32);
  EXPECT_EQ(file->FindTensor("three"), nullptr);
}

TEST(ParseGguf, TypedAccessNamesTheKey) {
  const std::vector<std::byte> bytes = Small().Build();
  const Result<GgufFile> file = ParseGguf(bytes);
  ASSERT_TRUE(file);
  EXPECT_EQ(GetInt(*file, "b").error().code(), Code::kNotFound);
  EXPECT_THAT(GetInt(*file, "b").error().message(), HasSubstr("'b'"));
  EXPECT_EQ(GetInt(*file, "a.name").error().code(), Code::kDataLoss);
  EXPECT_EQ(GetFloat(*file, "a.count").error().code(), Code::kDataLoss);
  EXPECT_EQ(GetString(*file, "a.count").error().code(), Code::kDataLoss);
  EXPECT_EQ(*GetIntOr(*file, "b", 5), 5);
  EXPECT_EQ(*GetFloatOr(*file, "b", 0.25), 0.25);
  EXPECT_EQ(GetIntOr(*file, "a.name", 5).error().code(), Code::kDataLoss);
}

TEST(ParseGguf, AcceptsVersion2AndOtherAlignments) {
  GgufBuilder builder = Small();
  builder.version = 2;
  EXPECT_TRUE(Parse(builder.Build()).ok());
  for (const std::uint32_t alignment : {8u, 64u, 65536u}) {
    builder.alignment = alignment;
    builder.U32("general.alignment", alignment);
    EXPECT_TRUE(Parse(builder.Build()).ok()) << alignment;
  }
}

TEST(ParseGguf, AcceptsAFileWithoutTensors) {
  GgufBuilder builder;
  EXPECT_TRUE(Parse(builder.Build()).ok());
  EXPECT_TRUE(Parse(builder.U32("a", 1).Build()).ok());
}

TEST(ParseGguf, EveryPrefixIsAnError) {
  for (const GgufBuilder& builder : {Small(), TinyGguf({.layers = 1, .ff = 4})}) {
    const std::vector<std::byte> bytes = builder.Build();
    std::size_t end = bytes.size();
    // Padding after the last tensor may be missing.
    const std::size_t last = builder.tensors.back().data.size();
    end -= (builder.alignment - last % builder.alignment) % builder.alignment;
    for (std::size_t i = 0; i < end; ++i) {
      const Status status = Parse(std::span(bytes).first(i));
      EXPECT_EQ(status.code(), Code::kDataLoss) << i << ": " << status.message();
    }
    EXPECT_TRUE(Parse(std::span(bytes).first(end)).ok());
  }
}

TEST(ParseGguf, EveryFlippedByteIsReadOrRefused) {
  std::vector<std::byte> bytes = Small().Build();
  const std::size_t header = Small().BuildHeader().size();
  std::size_t refused = 0;
  for (std::size_t i = 0; i < header; ++i) {
    const std::byte old = bytes[i];
    for (int value = 0; value < 256; ++value) {
      bytes[i] = static_cast<std::byte>(value);
      const Status status = Parse(bytes);
      refused += status.ok() ? 0 : 1;
      EXPECT_TRUE(status.ok() || !status.message().empty());
    }
    bytes[i] = old;
  }
  EXPECT_GT(refused, header * 128);  // most bytes of a header matter
}

TEST(ParseGguf, RandomDamageIsReadOrRefused) {
  const std::vector<std::byte> good = TinyGguf({.layers = 1, .ff = 4}).Build();
  Rng rng(3);
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    std::vector<std::byte> bytes = good;
    for (int hit = 0; hit < 4; ++hit) {
      bytes[rng.Below(2000)] = static_cast<std::byte>(rng.Below(256));
    }
    refused += Parse(bytes).ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 100);
}

// A malformed file: how it is made and what the message must name.
struct BadCase {
  const char* name;
  Code code;
  const char* message;
  std::function<std::vector<std::byte>()> make;
};
std::ostream& operator<<(std::ostream& out, const BadCase& bad) { return out << bad.name; }

BadCase Bad(const char* name, const char* message,
            const std::function<void(GgufBuilder&)>& break_it, Code code = Code::kDataLoss) {
  return {name, code, message, [break_it] {
            GgufBuilder builder = Small();
            break_it(builder);
            return builder.Build();
          }};
}

BadCase BadBytes(const char* name, const char* message, const ByteWriter& bytes,
                 Code code = Code::kDataLoss) {
  return {name, code, message, [bytes] { return bytes.bytes(); }};
}

// The start of a file: magic, version and counts.
ByteWriter Header(std::uint64_t tensors, std::uint64_t keys, std::uint32_t version = 3) {
  return ByteWriter().Text("GGUF").U32(version).U64(tensors).U64(keys);
}

BadCase BadKey(const char* name, const char* message, std::uint32_t type, const ByteWriter& value,
               Code code = Code::kDataLoss) {
  return Bad(
      name, message, [type, value](GgufBuilder& b) { b.Key("bad.key", type, value); }, code);
}

BadCase BadAlignment(const char* name, std::uint32_t alignment) {
  return Bad(name, "general.alignment",
             [alignment](GgufBuilder& b) { b.U32("general.alignment", alignment); });
}

BadCase BadDims(const char* name, std::vector<std::uint64_t> dims) {
  return Bad(name, "'two'", [dims](GgufBuilder& b) { b.Find("two").dims = dims; });
}

BadCase BadDimCount(const char* name, std::uint32_t count) {
  return Bad(name, "'two'", [count](GgufBuilder& b) { b.Find("two").dim_count = count; });
}

BadCase BadType(const char* name, std::uint32_t type) {
  return Bad(
      name, "'two'", [type](GgufBuilder& b) { b.Find("two").type = type; }, Code::kUnsupported);
}

BadCase BadOffset(const char* name, const char* message, std::uint64_t offset) {
  return Bad(name, message, [offset](GgufBuilder& b) { b.Find("two").offset = offset; });
}

std::vector<BadCase> BadHeaders() {
  return {
      BadBytes("Empty", "GGUF", ByteWriter()),
      BadBytes("MagicOnly", "header", ByteWriter().Text("GGUF")),
      Bad("OtherMagic", "start", [](GgufBuilder& b) { b.magic = "GGML"; }),
      Bad("LowerCaseMagic", "start", [](GgufBuilder& b) { b.magic = "gguf"; }),
      Bad(
          "Version0", "version 0", [](GgufBuilder& b) { b.version = 0; }, Code::kUnsupported),
      Bad(
          "Version1", "version 1", [](GgufBuilder& b) { b.version = 1; }, Code::kUnsupported),
      Bad(
          "Version4", "version 4", [](GgufBuilder& b) { b.version = 4; }, Code::kUnsupported),
      Bad(
          "Version3BigEndian", "big endian", [](GgufBuilder& b) { b.version = 3u << 24; },
          Code::kUnsupported),
      Bad(
          "Version2BigEndian", "big endian", [](GgufBuilder& b) { b.version = 2u << 24; },
          Code::kUnsupported),
      Bad("KeyCount2To63", "keys", [](GgufBuilder& b) { b.key_count = 1ull << 63; }),
      Bad("KeyCountMax", "keys", [](GgufBuilder& b) { b.key_count = ~0ull; }),
      Bad("TensorCount2To63", "tensors", [](GgufBuilder& b) { b.tensor_count = 1ull << 63; }),
      Bad("TensorCountMax", "tensors", [](GgufBuilder& b) { b.tensor_count = ~0ull; }),
      Bad("OneKeyTooMany", "", [](GgufBuilder& b) { b.key_count = 3; }),
      Bad("OneKeyTooFew", "", [](GgufBuilder& b) { b.key_count = 1; }),
      BadBytes("KeyLength2To63", "key 1", Header(0, 1).U64(1ull << 63).U32(0).U32(0)),
      BadBytes("KeyLength2To40", "key 1", Header(0, 1).U64(1ull << 40).U32(0).U32(0)),
      BadBytes("KeyLengthOnePastTheEnd", "key 1", Header(0, 1).U64(9).U64(0)),
      BadBytes("Version1EmptyString", "version 1", Header(0, 1, 1).U64(0).U64(0).U64(0),
               Code::kUnsupported),
      BadBytes("TooManyKeys", "at most", Header(0, 70000).Raw(std::vector<std::byte>(70000 * 14)),
               Code::kUnsupported),
      BadBytes("TooManyTensors", "at most",
               Header(70000, 0).Raw(std::vector<std::byte>(70000 * 33)), Code::kUnsupported),
  };
}

std::vector<BadCase> BadKeys() {
  const ByteWriter one = ByteWriter().U32(1);
  return {
      Bad("EmptyKey", "key", [one](GgufBuilder& b) { b.Key("", 4, one); }),
      Bad("KeyOf70000Bytes", "70000",
          [one](GgufBuilder& b) { b.Key(std::string(70000, 'k'), 4, one); }),
      Bad("KeyIsNotUtf8", "UTF-8", [one](GgufBuilder& b) { b.Key("k\xff", 4, one); }),
      Bad("KeyHoldsNul", "UTF-8",
          [one](GgufBuilder& b) { b.Key(std::string_view("k\0l", 3), 4, one); }),
      Bad("KeyTwice", "'a.count' comes twice",
          [one](GgufBuilder& b) { b.RepeatKey("a.count", 4, one); }),
      BadKey("ValueType13", "type 13", 13, one),
      BadKey("ValueTypeMax", "bad.key", 0xffffffff, one),
      BadKey("Bool2", "no bool", 7, ByteWriter().Number<std::uint8_t>(2)),
      BadKey("StringLength2To63", "bad.key", 8, ByteWriter().U64(1ull << 63)),
      BadKey("StringLength2To40", "bad.key", 8, ByteWriter().U64(1ull << 40)),
      BadKey("StringLengthMax", "bad.key", 8, ByteWriter().U64(~0ull)),
      BadKey("ArrayCountMax", "bad.key", 9, ByteWriter().U32(5).U64(~0ull)),
      BadKey("ArrayCount2To62", "bad.key", 9, ByteWriter().U32(5).U64(1ull << 62)),
      BadKey("ByteArrayCount2To40", "bad.key", 9, ByteWriter().U32(0).U64(1ull << 40)),
      BadKey("StringArrayCount2To61", "bad.key", 9, ByteWriter().U32(8).U64(1ull << 61)),
      BadKey("StringArrayWithALongString", "bad.key", 9,
             ByteWriter().U32(8).U64(2).String("x").U64(1ull << 63)),
      BadKey("NestedArray", "array of type 9", 9, ByteWriter().U32(9).U64(1).U32(4).U64(1).U32(5)),
      BadKey("ArrayOfType13", "array of type 13", 9, ByteWriter().U32(13).U64(0)),
      BadKey("BoolArrayHolds2", "bools", 9,
             ByteWriter().U32(7).U64(2).Number<std::uint8_t>(1).Number<std::uint8_t>(2)),
      BadAlignment("Alignment0", 0),
      BadAlignment("Alignment1", 1),
      BadAlignment("Alignment3", 3),
      BadAlignment("Alignment4", 4),
      BadAlignment("Alignment13", 13),
      BadAlignment("Alignment33", 33),
      BadAlignment("Alignment131072", 131072),
      BadAlignment("AlignmentMax", 0xffffffff),
      Bad("AlignmentIsAString", "general.alignment",
          [](GgufBuilder& b) { b.String("general.alignment", "32"); }),
      Bad("AlignmentIsSigned", "general.alignment",
          [](GgufBuilder& b) { b.I32("general.alignment", 32); }),
      Bad("AlignmentIs64Bits", "general.alignment",
          [](GgufBuilder& b) { b.Key("general.alignment", 10, ByteWriter().U64(32)); }),
  };
}

std::vector<BadCase> BadTensors() {
  return {
      BadDimCount("NoDimensions", 0),
      BadDimCount("FiveDimensions", 5),
      BadDimCount("NineDimensions", 9),
      BadDimCount("DimensionsMax", 0xffffffff),
      BadDims("FirstDimension0", {0, 3}),
      BadDims("SecondDimension0", {4, 0}),
      BadDims("DimensionMinus1", {4, ~0ull}),
      BadDims("DimensionMinus2To63", {4, 1ull << 63}),
      BadDims("ElementCountWraps", {(1ull << 42) + 1, 1ull << 22}),
      BadDims("ElementCountWrapsTwice", {(1ull << 63) - 64, (1ull << 63) - 64}),
      BadDims("ElementCountWrapsToZero", {1ull << 32, 1ull << 32, 1ull << 32}),
      BadDims("ByteCountWraps", {1ull << 62}),
      BadDims("MoreBytesThanTheFile", {4, 4000}),
      BadType("RemovedTypeQ4_2", 4),
      BadType("RemovedTypeQ4_0_4_4", 31),
      BadType("RemovedTypeIq4Nl44", 36),
      BadType("UnknownType1000", 1000),
      BadType("UnknownTypeMax", 0xffffffff),
      Bad("RowIsNoMultipleOfTheBlock", "block",
          [](GgufBuilder& b) { b.Find("two").type = 2; }),  // Q4_0: 32
      BadOffset("OffsetNotAligned", "alignment", 33),
      BadOffset("OffsetBelowAlignment", "alignment", 8),
      BadOffset("OffsetPastTheEnd", "bytes at offset", 1 << 20),
      BadOffset("OffsetNearTheEnd", "bytes at offset", 96),
      BadOffset("OffsetWraps", "bytes at offset", ~0ull - 31),
      BadOffset("TensorsShareAnOffset", "overlap", 0),
      Bad("TensorsOverlap", "overlap", [](GgufBuilder& b) { b.Find("one").dims = {16}; }),
      Bad("TensorTwice", "'one' comes twice", [](GgufBuilder& b) { b.Find("two").name = "one"; }),
      Bad("TensorWithoutName", "name", [](GgufBuilder& b) { b.Find("two").name = ""; }),
      Bad("TensorNameOf64Bytes", "name",
          [](GgufBuilder& b) { b.Find("two").name = std::string(64, 't'); }),
      Bad("TensorNameIsNotUtf8", "UTF-8", [](GgufBuilder& b) { b.Find("two").name = "t\xc3"; }),
      Bad("TensorDataEndsEarly", "bytes at offset",
          [](GgufBuilder& b) { b.Find("two").data.clear(); }),
      BadBytes("TensorNameLength2To63", "tensor entry",
               Header(1, 0).U64(1ull << 63).Raw(std::vector<std::byte>(64))),
      BadBytes("NoDataSection", "bytes at offset",
               Header(1, 0).String("t").U32(1).U64(4).U32(0).U64(0)),
  };
}

class MalformedGguf : public ::testing::TestWithParam<BadCase> {};

TEST_P(MalformedGguf, IsRefused) {
  const Status status = Parse(GetParam().make());
  EXPECT_EQ(status.code(), GetParam().code) << status.message();
  EXPECT_THAT(status.message(), HasSubstr(GetParam().message));
}

std::string CaseName(const ::testing::TestParamInfo<BadCase>& info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Header, MalformedGguf, ::testing::ValuesIn(BadHeaders()), CaseName);
INSTANTIATE_TEST_SUITE_P(Key, MalformedGguf, ::testing::ValuesIn(BadKeys()), CaseName);
INSTANTIATE_TEST_SUITE_P(Tensor, MalformedGguf, ::testing::ValuesIn(BadTensors()), CaseName);

}  // namespace
}  // namespace rkv::model
