// A backend around another one, for tests: counts rows, and lets a test change what a pass gave.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "kernels/backend.h"

namespace lockstep::test {

// As a device that finds the greatest logits itself: of the rows that `lists` says (by its place
// among those wanted) only what is asked for is there, and junk where the row was.
inline void list_greatest(kernels::Pass& pass, int64_t n_vocab,
                          const std::function<bool(int64_t)>& lists) {
  if (pass.greatest_wanted == 0) return;
  const int64_t rows = std::ssize(pass.logits) / n_vocab;
  pass.greatest.resize(static_cast<size_t>(rows));
  for (int64_t row = 0; row < rows; ++row) {
    if (!lists(row)) continue;
    const auto logits =
        pass.logits.subspan(static_cast<size_t>(row * n_vocab), static_cast<size_t>(n_vocab));
    std::vector<float> sorted(logits.begin(), logits.end());
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    const int64_t wanted = std::min(pass.greatest_wanted, n_vocab);
    const float bound = sorted[static_cast<size_t>(wanted - 1)];
    for (int64_t id = 0; id < n_vocab; ++id) {
      const float x = logits[static_cast<size_t>(id)];
      if (x >= bound) {
        pass.greatest[static_cast<size_t>(row)].push_back({x, static_cast<int32_t>(id)});
      }
    }
    std::fill(logits.begin(), logits.end(), NAN);
  }
}

class HookedBackend final : public kernels::Backend {
 public:
  explicit HookedBackend(std::unique_ptr<kernels::Backend> inner) : inner_(std::move(inner)) {}

  kernels::BackendInfo info() const override { return inner_->info(); }
  kernels::LoadReport prepare(const kernels::Graph& graph) override {
    return inner_->prepare(graph);
  }
  std::unique_ptr<kernels::Backend> sibling(const std::string& isa, int threads) const override {
    return inner_->sibling(isa, threads);
  }
  void run(const kernels::Graph& graph, kernels::Pass& pass) override {
    ++passes;
    for (const kernels::PassSegment& segment : pass.segments) {
      rows += static_cast<int64_t>(segment.tokens.size());
    }
    if (before) before(pass);
    inner_->run(graph, pass);
    if (after) after(pass);
    if (lists) list_greatest(pass, graph.n_vocab, lists);
  }
  void set_observer(kernels::OpObserver* observer) override { inner_->set_observer(observer); }

  int64_t passes = 0, rows = 0;
  std::function<void(kernels::Pass&)> before, after;
  std::function<bool(int64_t)> lists;  // null: every row is left as it is

 private:
  std::unique_ptr<kernels::Backend> inner_;
};

inline std::shared_ptr<HookedBackend> hooked_backend(int threads = 1) {
  return std::make_shared<HookedBackend>(kernels::make_cpu_backend("", threads));
}

// A fault of every row whose token is `token`, at whatever position.
inline void fault_on_token(HookedBackend& backend, int32_t token, int op = 0) {
  backend.after = [token, op](kernels::Pass& pass) {
    int64_t row = 0;
    for (const kernels::PassSegment& segment : pass.segments) {
      for (const int32_t t : segment.tokens) {
        if (t == token) pass.faults.push_back({.row = row, .op = op});
        ++row;
      }
    }
  };
}

}  // namespace lockstep::test
