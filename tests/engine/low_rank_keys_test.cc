// ShadowKV's keys of low rank: equal to truncated singular values of the keys before RoPE.
#include "engine/low_rank_keys.h"

#include <gtest/gtest.h>

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "support/random.h"
#include "support/tiny_engine.h"

namespace rkv::engine {
namespace {

using Matrix = Eigen::MatrixXd;
using List = std::vector<std::int32_t>;

// A session of a tiny model with random rows in layer 0.
class Layer {
 public:
  Layer(const std::string& model, const std::string& policy, int threads = 2,
        kv::Codec codec = kv::Codec::kF32)
      : model_(*model::Model::Load(test::TinyModel(model))), pool_(threads) {
    runtime_.model = model_.get();
    runtime_.pool = &pool_;
    runtime_.backend = &attention::CpuBackend();
    runtime_.codec = codec;
    session_ = std::make_unique<SessionState>(runtime_, *policy::MakePolicy(policy), 8);
  }

  // positions: of each kv_head's rows. data_rank: of the keys before RoPE, all heads together.
  void Fill(const std::vector<List>& positions, std::int32_t data_rank) {
    const auto d = static_cast<std::size_t>(runtime_.params().head_dim);
    EXPECT_TRUE(session_->BeginTurn(static_cast<std::int32_t>(positions[0].size()), runtime_).ok());
    Rng rng(7);
    const Matrix directions = Matrix::NullaryExpr(
        data_rank, static_cast<Eigen::Index>(d * positions.size()), [&] { return rng.Normal(); });
    for (std::size_t i = 0; i < positions[0].size(); ++i) {
      const Matrix code =
          Matrix::NullaryExpr(1, data_rank, [&] { return static_cast<double>(rng.Normal()); });
      const Matrix row = code * directions;
      for (std::size_t h = 0; h < positions.size(); ++h) {
        std::vector<float> key(d);
        for (std::size_t x = 0; x < d; ++x) {
          key[x] = static_cast<float>(row(0, static_cast<Eigen::Index>(h * d + x)));
        }
        std::vector<float> angles(static_cast<std::size_t>(model_->rope().dims()));
        model_->rope().Angles(positions[h][i], angles);
        model_->rope().Apply(angles, key.data(), 1, static_cast<std::int32_t>(d));
        const auto at = cache().heads[h].Extend(1, positions[h][i]);
        cache().heads[h].WriteRow(*at, key, test::NormalVector(rng, d));
      }
    }
    for (std::size_t h = 0; h < positions.size(); ++h) {
      cache().states[h] = session_->NewState(0, static_cast<std::int32_t>(h));
      EXPECT_TRUE(cache().states[h]->Build({.rows = cache().Slots(h)}).ok());
    }
  }

  void Reduce() { ReduceKeys(runtime_, *session_, 0); }

  List Exact(std::size_t h) {
    List exact;
    session_->policy->ExactKeys(session_->shape, *cache().states[h], cache().Slots(h).slots, exact);
    return exact;
  }

  // Keys before RoPE of heads [first, first + count), one row a token.
  Matrix Keys(std::size_t first, std::size_t count) {
    const auto d = static_cast<std::size_t>(runtime_.params().head_dim);
    Matrix keys(cache().heads[first].rows(), static_cast<Eigen::Index>(d * count));
    for (std::size_t h = first; h < first + count; ++h) {
      const kv::HeadView view = cache().heads[h].view();
      for (std::int32_t row = 0; row < view.rows; ++row) {
        std::vector<float> key(d);
        kv::DecodeRow(runtime_.codec, view.Key(row), key);
        std::vector<float> angles(static_cast<std::size_t>(model_->rope().dims()));
        model_->rope().Angles(view.positions[row], angles);
        for (std::size_t i = 0; i < angles.size(); i += 2) {  // the inverse of a scaled rotation
          const float norm = angles[i] * angles[i] + angles[i + 1] * angles[i + 1];
          angles[i] /= norm;
          angles[i + 1] /= -norm;
        }
        model_->rope().Apply(angles, key.data(), 1, static_cast<std::int32_t>(d));
        for (std::size_t x = 0; x < d; ++x) {
          keys(row, static_cast<Eigen::Index>((h - first) * d + x)) = key[x];
        }
      }
    }
    return keys;
  }

  // Bytes of all rows of a head.
  std::vector<std::byte> Bytes(std::size_t h, bool values) {
    const kv::HeadView view = cache().heads[h].view();
    std::vector<std::byte> bytes;
    for (std::int32_t row = 0; row < view.rows; ++row) {
      const std::byte* from = values ? view.Value(row) : view.Key(row);
      bytes.insert(bytes.end(), from, from + view.value_offset());
    }
    return bytes;
  }

  LayerCache& cache() { return session_->layers[0]; }
  const policy::Needs& needs() const { return session_->needs; }

 private:
  std::unique_ptr<model::Model> model_;
  ThreadPool pool_;
  Runtime runtime_;
  std::unique_ptr<SessionState> session_;
};

List Range(std::int32_t count, std::int32_t first = 0) {
  List out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

// The projection on the best `rank` directions, by plain algebra in double.
Matrix Truncated(const Matrix& keys, std::int32_t rank) {
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(keys.transpose() * keys);
  const Matrix directions = solver.eigenvectors().rightCols(rank);
  return keys * directions * directions.transpose();
}

constexpr const char* kPolicy = "shadowkv:budget=32,page_size=4,bypass=1,outliers=4,local=3";

TEST(LowRankKeys, AreThoseOfTruncatedSingularValues) {
  for (const char* model :
       {"llama-f32-mha", "llama-f32-yarn", "llama-f32-linear", "qwen2-f32-gqa7"}) {
    Layer layer(model, std::string(kPolicy) + ",rank=20");
    const std::size_t heads = layer.cache().heads.size();
    layer.Fill(std::vector<List>(heads, Range(500)), 40);
    ASSERT_EQ(layer.needs().key_rank, 20);
    const Matrix before = layer.Keys(0, heads);
    std::vector<std::vector<std::byte>> values;
    for (std::size_t h = 0; h < heads; ++h) {
      values.push_back(layer.Bytes(h, true));
    }
    layer.Reduce();
    const Matrix after = layer.Keys(0, heads);
    const Matrix expected = Truncated(before, 20);
    EXPECT_GT((expected - before).norm(), 0.1 * before.norm());
    const Eigen::Index d = before.cols() / static_cast<Eigen::Index>(heads);
    for (std::size_t h = 0; h < heads; ++h) {
      const List exact = layer.Exact(h);
      EXPECT_GE(exact.size(), 3u);
      EXPECT_LE(exact.size(), 7u);
      for (std::int32_t row = 0; row < 500; ++row) {
        const Matrix& like = std::ranges::binary_search(exact, row) ? before : expected;
        const auto block = [&](const Matrix& m) {
          return m.block(row, static_cast<Eigen::Index>(h) * d, 1, d);
        };
        ASSERT_LT((block(after) - block(like)).norm(), 1e-4 * before.row(row).norm())
            << model << " head " << h << " row " << row;
      }
      EXPECT_EQ(layer.Bytes(h, true), values[h]);
    }
  }
}

TEST(LowRankKeys, DataOfThatRankStayAsTheyAre) {
  Layer layer("llama-f32-mha", std::string(kPolicy) + ",rank=20");
  layer.Fill({Range(300), Range(300)}, 20);
  const Matrix before = layer.Keys(0, 2);
  layer.Reduce();
  EXPECT_LT((layer.Keys(0, 2) - before).norm(), 1e-4 * before.norm());
}

TEST(LowRankKeys, AllDirectionsAreNotEvenTried) {
  Layer layer("llama-f32-mha", std::string(kPolicy) + ",rank=128");
  layer.Fill({Range(300), Range(300)}, 20);
  EXPECT_EQ(layer.needs().key_rank, 0);
}

TEST(LowRankKeys, DoNotDependOnTheNumberOfThreads) {
  for (const kv::Codec codec : {kv::Codec::kF32, kv::Codec::kF16, kv::Codec::kQ8}) {
    std::vector<std::byte> bytes;
    for (const int threads : {1, 2, 5}) {
      Layer layer("llama-f32-mha", std::string(kPolicy) + ",rank=20", threads, codec);
      layer.Fill({Range(700), Range(700)}, 40);
      layer.Reduce();
      const std::vector<std::byte> now = layer.Bytes(1, false);
      EXPECT_TRUE(bytes.empty() || now == bytes);
      bytes = now;
    }
  }
}

TEST(LowRankKeys, HeadsWithOtherPositionsAreProjectedAlone) {
  Layer layer("llama-f32-mha", std::string(kPolicy) + ",rank=31");
  layer.Fill({Range(300), Range(300, 5)}, 60);
  const Matrix before = layer.Keys(1, 1);
  layer.Reduce();
  const Matrix after = layer.Keys(1, 1);
  const Matrix expected = Truncated(before, 16);  // half of 31, rounded up
  const List exact = layer.Exact(1);
  for (std::int32_t row = 0; row < 300; ++row) {
    const Matrix& like = std::ranges::binary_search(exact, row) ? before : expected;
    ASSERT_LT((after.row(row) - like.row(row)).norm(), 1e-4 * before.row(row).norm());
  }
}

// The whole engine: all directions and rows that a step reads anyway give the logits of full.
TEST(LowRankKeys, FullRankAndBudgetGiveTheLogitsOfFull) {
  const auto engine = test::OpenTiny("llama-f32-mha", {.compute = Compute::kF32});
  const std::vector<Token> tokens = test::RandomTokens(210, engine->model().vocab);
  const std::span<const Token> all(tokens);
  const auto run = [&](const std::string& policy) {
    const auto session = test::NewSession(*engine, policy, 8);
    return test::Trace(*engine, *session, all.first(200), all.last(8));
  };
  const auto full = run("full");
  EXPECT_EQ(run("shadowkv:budget=1000"), full);
  const auto most = run("shadowkv:budget=64,topk=206,page_size=1000,bypass=1,rank=127");
  ASSERT_EQ(most.size(), full.size());
  for (std::size_t step = 0; step < full.size(); ++step) {
    double error = 0;
    double norm = 0;
    for (std::size_t i = 0; i < full[step].size(); ++i) {
      error += std::pow(full[step][i] - most[step][i], 2);
      norm += std::pow(full[step][i], 2);
    }
    EXPECT_LT(error, 0.02 * norm) << step;
  }
  EXPECT_NE(most, full);
}

}  // namespace
}  // namespace rkv::engine
