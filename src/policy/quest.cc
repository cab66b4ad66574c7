// Quest: pages of rows with their minimum and maximum key; a step reads the pages whose bound on
// the logit is best. Policy specification 2.5, arXiv:2406.10774.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>

#include "policy/budget_split.h"
#include "policy/choose_rows.h"
#include "policy/methods.h"
#include "policy/score_blocks.h"

namespace rkv::policy {
namespace {

constexpr std::array<std::string_view, 2> kSides = {"two", "one"};
constexpr std::array<std::string_view, 2> kHeads = {"group", "query"};

class Quest final : public Selector {
 public:
  void Options(OptionVisitor& options) override {
    options.Int("page_size", page_rows_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "rows of a page");
    options.Int("topk", top_k_, {.low = 1, .high = kMaxTokens, .automatic = true},
                "rows read per step and KV head");
    options.Choice("sides", sides_, kSides,
                   "two: every query head bounds a page by minima and maxima; one: by those that "
                   "the sign of the group's summed query picks");
    options.Choice(
        "heads", heads_, kHeads,
        "who chooses pages: the group together, or each query head, which then reads its "
        "share of topk");
    options.Int("dense_layers", dense_layers_, {.low = 0, .high = kMaxTokens},
                "first layers that read everything");
  }

  Status CheckShape(const TurnShape& shape) const override {
    return CheckUpTo("dense_layers", dense_layers_, shape.layers, "the model's layers");
  }

  void Explain(const TurnShape& shape, Numbers& out) const override {
    out.emplace_back("topk", TopK(shape));
    out.emplace_back("c2", CompressionRatio(shape.capacity, shape.budget));
    out.emplace_back("page_size", PageRows(shape));
  }

  // The mean over the layers.
  StepCost Cost(const TurnShape& shape, std::int32_t slots) const override {
    const double dense = static_cast<double>(dense_layers_) / shape.layers;
    const std::int32_t page = PageRows(shape);
    const int sides = page == 1 ? 1 : SidesRead(shape);  // a page of one row is its key
    return {.estimate = (1 - dense) * slots / page * sides / 2,
            .rows = (1 - dense) * TopK(shape) + dense * slots};
  }

  std::unique_ptr<HeadState> NewState(const StateShape& shape) const override {
    return shape.layer < dense_layers_
               ? nullptr
               : std::make_unique<ChunkState>(shape, shape.turn->head_dim, PageRows(*shape.turn));
  }
  std::size_t StateBytes(const TurnShape& shape, kv::Codec codec,
                         std::int64_t rows) const override {
    return kv::ChunkIndex::Bytes(shape.head_dim, codec, PageRows(shape), rows);
  }

  Status Select(const HeadDecode& in, Rows& read) const override {
    if (in.layer < dense_layers_) {
      return {};
    }
    const kv::IndexView index = static_cast<const ChunkState&>(*in.state).view();
    Scratch::Frame frame(*in.scratch);
    read.all = false;
    if (PerHead(*in.shape)) {
      ReadByHead(in, index, frame, read);
    } else {
      Choose(in, ScoreChunks(in, index, index.head_dim, false, frame, read).u, index, read.list);
    }
    return {};
  }

 private:
  // Whether every query head picks its own side of the pages.
  bool PerHead(const TurnShape& shape) const {
    return shape.group > 1 && (sides_ == 0 || heads_ == 1);
  }
  // Sides of the index that a step reads: a single sign for each channel needs one only.
  std::int32_t SidesRead(const TurnShape& shape) const { return PerHead(shape) ? 2 : 1; }

  // Estimation takes half of the budget: slots / page * sides / 2 = t / 2.
  std::int32_t PageRows(const TurnShape& shape) const {
    const double c2 = CompressionRatio(shape.capacity, shape.budget);
    return page_rows_ > 0 ? page_rows_
                          : static_cast<std::int32_t>(std::ceil(c2 * SidesRead(shape)));
  }
  // Of a KV head: with heads=query the sum over its query heads.
  std::int32_t TopK(const TurnShape& shape) const {
    const std::int32_t k = top_k_ > 0 ? top_k_ : shape.budget / 2;
    return heads_ == 0 ? k : std::max(1, k / shape.group) * shape.group;
  }

  // The last page, as Quest's CUDA engine, but at most half of what is read: where k holds fewer
  // than two pages that engine does not select at all.
  void Choose(const HeadDecode& in, std::span<const float> u, const kv::IndexView& index,
              std::vector<std::int32_t>& out) const {
    const std::int32_t k = heads_ == 0 ? TopK(*in.shape) : TopK(*in.shape) / in.shape->group;
    const std::int32_t before = (index.chunks() - 1) * index.chunk_rows;
    const std::int32_t last = std::min(index.rows - before, std::max({1, k / 2, k - before}));
    ChooseRows(in, u, index.chunk_rows, k, {.last = last}, out);
  }

  // u[b] = sum over heads of softmax_b(z_h / sqrt d), or each head's own: with one query head and
  // all channels Backend::chunk_scores is just that, its sides being those of the bound.
  void ReadByHead(const HeadDecode& in, const kv::IndexView& index, Scratch::Frame& frame,
                  Rows& read) const {
    const auto chunks = static_cast<std::size_t>(index.chunks());
    const std::span<float> sum(frame.Array<float>(chunks), chunks);
    std::ranges::fill(sum, 0.0f);
    Rows bytes;  // of one side
    for (std::int32_t g = 0; g < in.query.group; ++g) {
      HeadDecode head = in;
      head.query = {in.query.q + static_cast<std::size_t>(g * index.head_dim), 1};
      bytes.estimate_bytes = 0;
      const std::span<float> u = ScoreChunks(head, index, index.head_dim, false, frame, bytes).u;
      if (heads_ == 1) {
        Choose(head, u, index, read.heads.emplace_back());
      } else {
        std::ranges::transform(sum, u, sum.begin(), std::plus<>());
      }
    }
    read.estimate_bytes += (index.chunk_rows == 1 ? 1 : 2) * bytes.estimate_bytes;
    if (heads_ == 0) {
      Choose(in, sum, index, read.list);
    }
  }

  std::int32_t page_rows_ = 0;
  std::int32_t top_k_ = 0;
  std::size_t sides_ = 0;
  std::size_t heads_ = 0;
  std::int32_t dense_layers_ = 0;
};

}  // namespace

Method QuestMethod() {
  return {.info = {.name = "quest",
                   .keeps = "everything",
                   .reads = "topk rows: the last page and those pages whose bound on the attention "
                            "logit is best",
                   .state = "minimum and maximum key of each page: 1/page_size of the cache",
                   .source = "Quest, arXiv:2406.10774"},
          .make = [] { return Parts{.selector = std::make_unique<Quest>()}; }};
}

}  // namespace rkv::policy
