#include "bench/weight_bytes.h"

#include <gtest/gtest.h>

namespace rkv::bench {
namespace {

// 10 numbers an embedding, 100 words: a table has 1000, the layers 2 * 10 * (40 + 20 + 60 + 2).
ModelInfo Tiny() {
  ModelInfo model;
  model.layers = 2;
  model.embd = 10;
  model.heads = 2;
  model.kv_heads = 1;
  model.head_dim = 10;
  model.ff = 20;
  model.vocab = 100;
  return model;
}

TEST(EstimateWeightBytes, LeavesOutATableThatMakesNoLogits) {
  ModelInfo model = Tiny();
  model.parameters = 2440 + 10 + 2 * 1000;
  model.file_bytes = 2 * model.parameters;
  EXPECT_EQ(EstimateWeightBytes(model), 2U * (2450 + 1000));
}

TEST(EstimateWeightBytes, CountsATableThatServesTwice) {
  ModelInfo model = Tiny();
  model.parameters = 2440 + 10 + 1000;
  model.file_bytes = 2 * model.parameters;
  EXPECT_EQ(EstimateWeightBytes(model), 2U * 3450);
  EXPECT_EQ(WeightBytesPerToken(model), 2U * 3450);  // it has no file
}

}  // namespace
}  // namespace rkv::bench
