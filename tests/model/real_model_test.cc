// Real models, where LOCKSTEP_MODELS names a directory that has them: the text they give, and their
// distributions against llama.cpp's (b11434) and an exact binary64 pass over the same weights, both
// recorded in golden/ by make_golden.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "runner.h"

namespace lockstep::model {
namespace {

using state::KvType;

struct TopRow {
  size_t position = 0;
  std::vector<std::pair<int32_t, double>> llama_cpp, exact;  // id, log-probability
};
struct Golden {
  std::vector<int32_t> prompt, continuation, ids;
  std::vector<TopRow> rows;
};

Golden read_golden(const std::string& model) {
  std::ifstream file(std::string(LOCKSTEP_SOURCE_DIR) + "/tests/model/golden/" + model + ".txt");
  EXPECT_TRUE(file) << model;
  Golden golden;
  for (std::string line; std::getline(file, line);) {
    std::istringstream in(line);
    std::string kind;
    in >> kind;
    if (kind == "llama.cpp" || kind == "exact") {
      size_t position = 0;
      in >> position;
      if (kind == "llama.cpp") golden.rows.push_back({position, {}, {}});
      auto& list = kind == "exact" ? golden.rows.back().exact : golden.rows.back().llama_cpp;
      for (std::string pair; in >> pair;) {
        list.emplace_back(std::stoi(pair), std::stod(pair.substr(pair.find(':') + 1)));
      }
    } else {
      auto& list = kind == "greedy" ? golden.prompt
                   : kind == "then" ? golden.continuation
                                    : golden.ids;
      for (int32_t id; in >> id;) list.push_back(id);
    }
  }
  return golden;
}

std::shared_ptr<const Model> load(const std::string& name) {
  const char* directory = std::getenv("LOCKSTEP_MODELS");
  if (directory == nullptr) return nullptr;
  const auto path = std::filesystem::path(directory) / (name + ".gguf");
  return std::filesystem::exists(path) ? Model::load(gguf::File::open(path)) : nullptr;
}

int32_t best(const std::vector<float>& row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

double log_sum(const std::vector<float>& row) {
  const double most = row[static_cast<size_t>(best(row))];
  double sum = 0;
  for (const float value : row) sum += std::exp(static_cast<double>(value) - most);
  return most + std::log(sum);
}

class RealModel : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = load(GetParam());
    if (!model_) {
      // Where a folder of models is named, a missing one is a failure: a skip would pass for a
      // test.
      ASSERT_EQ(std::getenv("LOCKSTEP_MODELS"), nullptr) << "no " << GetParam() << ".gguf there";
      GTEST_SKIP() << "LOCKSTEP_MODELS names no folder";
    }
    golden_ = read_golden(GetParam());
  }
  std::shared_ptr<const Model> model_;
  Golden golden_;
};

// Greedy text as llama.cpp's, up to a place where the two best are closer than the rounding noise
// of either engine.
TEST_P(RealModel, ContinuesAPromptAsLlamaCppDoes) {
  Runner runner(model_, kernels::make_cpu_backend("", 2), KvType::f16, KvType::f16, 1000);
  std::vector<float> row =
      runner.pass(golden_.prompt, static_cast<int64_t>(golden_.prompt.size()) - 1).logits[0];
  size_t same = 0;
  for (const int32_t expected : golden_.continuation) {
    const int32_t chosen = best(row);
    if (chosen != expected) {
      EXPECT_LT(row[static_cast<size_t>(chosen)] - row[static_cast<size_t>(expected)], 0.3f)
          << "token " << same;
      break;
    }
    ++same;
    row = runner.pass(std::span(&chosen, 1)).logits[0];
  }
  EXPECT_GE(same, 8u);
  std::printf("%s: %zu of %zu greedy ids as llama.cpp's\n", GetParam(), same,
              golden_.continuation.size());
}

TEST_P(RealModel, IsNoFurtherFromTheExactPassThanLlamaCpp) {
  Runner runner(model_, kernels::make_cpu_backend("", 2), KvType::f16, KvType::f16, 1000);
  const auto logits = runner.history(golden_.ids, 64);
  double own = 0, other = 0, apart = 0;
  int64_t count = 0, own_top = 0, other_top = 0;
  for (const TopRow& row : golden_.rows) {
    const std::vector<float>& mine = logits[row.position];
    const double sum = log_sum(mine);
    const auto exact_best =
        std::max_element(row.exact.begin(), row.exact.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    own_top += best(mine) == exact_best->first;
    other_top += row.llama_cpp.front().first == exact_best->first;
    for (size_t i = 0; i < row.exact.size(); ++i) {
      const double logprob = mine[static_cast<size_t>(row.exact[i].first)] - sum;
      own += std::abs(logprob - row.exact[i].second);
      other += std::abs(row.llama_cpp[i].second - row.exact[i].second);
      apart += std::abs(logprob - row.llama_cpp[i].second);
      ++count;
    }
  }
  const double n = static_cast<double>(count);
  std::printf(
      "%s, mean difference of log-probabilities over %lld: Lockstep to exact %.4f, llama.cpp to "
      "exact %.4f, Lockstep to llama.cpp %.4f; top choice exact's in %lld and %lld of %zu rows\n",
      GetParam(), static_cast<long long>(count), own / n, other / n, apart / n,
      static_cast<long long>(own_top), static_cast<long long>(other_top), golden_.rows.size());
  EXPECT_LT(own / n, 1.25 * other / n);
  EXPECT_LT(apart / n, 0.15);
  EXPECT_GE(own_top * 10, static_cast<int64_t>(golden_.rows.size()) * 8);
}

// Width, threads, instruction set and chunking on the real thing, past Gemma's window of 512.
TEST_P(RealModel, SameBitsHoweverTheHistoryIsCut) {
  std::vector<int32_t> tokens;
  while (tokens.size() < 640) tokens.insert(tokens.end(), golden_.ids.begin(), golden_.ids.end());
  tokens.resize(640);
  const auto run = [&](const char* isa, int threads, size_t chunk, Digest& state) {
    Runner runner(model_, kernels::make_cpu_backend(isa, threads), KvType::f16, KvType::f16, 1000);
    std::vector<std::vector<float>> last;
    size_t at = 0;
    while (at + chunk < 600) {
      runner.pass(std::span(tokens).subspan(at, chunk), static_cast<int64_t>(chunk));
      at += chunk;
    }
    runner.pass(std::span(tokens).subspan(at, 600 - at), static_cast<int64_t>(600 - at));
    for (at = 600; at < 640; at += std::min<size_t>(chunk, 8)) {
      auto rows = runner.pass(std::span(tokens).subspan(at, std::min<size_t>(chunk, 8))).logits;
      for (auto& row : rows) last.push_back(std::move(row));
    }
    state = runner.cache().hash();
    return last;
  };
  Digest state_a, state_b;
  const auto a = run("", 2, 64, state_a);
  const auto b = run("scalar", 1, 1, state_b);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)), 0)
        << "position " << 600 + i;
  }
  EXPECT_EQ(state_a, state_b);
}

INSTANTIATE_TEST_SUITE_P(All, RealModel,
                         testing::Values("SmolLM2-135M-Instruct.Q4_1", "gemma-3-270m-q4_k_m"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); },
                               '_');
                           return name;
                         });

}  // namespace
}  // namespace lockstep::model
