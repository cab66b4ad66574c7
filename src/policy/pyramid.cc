// PyramidKV: layer budgets that fall linearly from the first layer to the last.
// Policy specification section 3, arXiv:2406.02069.
#include <algorithm>

#include "policy/layer_allocator.h"
#include "policy/methods.h"

namespace rkv::policy {
namespace {

class Pyramid final : public LayerAllocator {
 public:
  Pyramid() : LayerAllocator(true) {}

  void Options(OptionVisitor& options) override {
    options.Number("beta", beta_, {.low = 1, .high = 1000},
                   "how many times the last layer's share is below the mean");
    LayerAllocator::Options(options);
  }

  void Explain(const TurnShape& shape, Numbers& out) const override {
    const std::vector<std::int32_t> budgets = Budgets(shape, {});
    out.emplace_back("first_layer_budget", budgets.front());
    out.emplace_back("last_layer_budget", budgets.back());
    inner().Explain(shape, out);
  }

 protected:
  // What every layer keeps in any case, the window, takes no part.
  std::vector<std::int32_t> Budgets(const TurnShape& shape,
                                    std::span<const float> /*cosine*/) const override {
    const std::int32_t window = LeastRows() - 1;
    const double base = std::max(0, shape.prompt_budget - window);
    // The first layer gets no more than the prompt has; the others then get the difference.
    const double most = std::max<double>(base, shape.prompt_tokens - window);
    const double high = std::min(2 * base - base / beta_, most);
    const double low = 2 * base - high;
    const std::int32_t layers = shape.layers;
    std::vector<double> shares;
    for (std::int32_t l = 0; l < layers; ++l) {
      shares.push_back(layers == 1 ? base : high - l * ((high - low) / (layers - 1)));
    }
    std::vector<std::int32_t> budgets =
        RoundShares(shares, static_cast<std::int64_t>(base) * layers);
    for (std::int32_t& budget : budgets) {
      budget += std::min(window, shape.prompt_budget);
    }
    return budgets;
  }

 private:
  double beta_ = 20;
};

}  // namespace

Method PyramidMethod() {
  return {.info = {.name = "pyramid",
                   .keeps = "budget rows per KV head on average over the layers, most in the first "
                            "and least in the last, chosen as `inner` does",
                   .reads = "everything kept",
                   .state = "that of `inner`",
                   .source = "PyramidKV, arXiv:2406.02069"},
          .make = [] { return Parts{.evictor = std::make_unique<Pyramid>()}; }};
}

}  // namespace rkv::policy
