// A backend around another one, for tests: counts rows, and lets a test change what a pass gave.
#pragma once

#include <functional>
#include <memory>

#include "kernels/backend.h"

namespace lockstep::test {

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
  }
  void set_observer(kernels::OpObserver* observer) override { inner_->set_observer(observer); }

  int64_t passes = 0, rows = 0;
  std::function<void(kernels::Pass&)> before, after;

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
