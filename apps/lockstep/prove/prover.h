// Decodes plainly and under configurations, and compares: token ids from the production path, a
// hash of every logits row, a hash of the KV pages after each pass.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "decode/session.h"
#include "prove/trace.h"

namespace lockstep::app {

// What the bits may depend on, besides the model: one x of the contract.
struct Case {
  std::string name;
  std::vector<int32_t> prompt;
  sample::Parameters sampling;
  kernels::KvType k_type = kernels::KvType::f16, v_type = kernels::KvType::f16;
  bool operator==(const Case&) const = default;
};

// Everything the bits may not depend on.
struct How {
  std::shared_ptr<kernels::Backend> backend;
  int64_t chunk = 64;
  std::function<std::shared_ptr<draft::Source>(const Trace& plain)> source;  // null: none
  int depth = 0;
  bool automatic = false;    // depth up to that, by a clock that goes at random
  bool rows = true;          // logits rows are looked at
  int64_t tokens = 0;        // stop once so many are there
  int64_t passes = 1 << 30;  // or after so many decoding passes
};

// What a configuration must have exercised; otherwise it proves nothing and fails.
struct Needs {
  bool accepted = false, rejected = false, reused = false, looked_at = true;
  std::vector<int64_t> widths;

  Needs& accept() { return accepted = true, *this; }
  Needs& reject() { return rejected = true, *this; }
  Needs& reuse() { return reused = true, *this; }
  Needs& no_rows() { return looked_at = false, *this; }
  Needs& width(int64_t rows) { return widths.push_back(rows), *this; }
};

struct Line {
  std::string name;
  int64_t proposed = 0, accepted = 0, tokens = 0, rows = 0, states = 0, pages_reused = 0;
  std::map<int64_t, int64_t> widths;
  std::optional<Difference> first;
  std::string first_case;
  std::string unexercised;  // what was missing, "" if nothing
  double seconds = 0;
  bool identical() const { return !first && unexercised.empty(); }
};

class Prover {
 public:
  // plain: where the plain runs are made; null: on `backend`, as everything else.
  Prover(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
         int64_t tokens, std::shared_ptr<kernels::Backend> plain = nullptr);

  const model::Model& model() const { return *model_; }
  const std::shared_ptr<const model::Model>& shared_model() const { return model_; }
  const std::shared_ptr<kernels::Backend>& backend() const { return backend_; }
  const std::shared_ptr<kernels::Backend>& plain_backend() const { return plain_backend_; }
  int64_t tokens() const { return tokens_; }  // that an arm decodes at least
  // Tokens of a plain run: what an arm may decode beyond tokens() with its last draft too.
  int64_t plain_tokens() const;

  // The plain run of a case: one row a pass, prompt included, so that it has a state of every size.
  // Made once.
  const Trace& plain(const Case& of);
  // The plain tokens from the prompt's end on.
  std::vector<int32_t> continuation(const Case& of);

  std::unique_ptr<decode::Session> new_session(const Case& of,
                                               std::shared_ptr<kernels::Backend> backend) const;
  // A session whose state stays from run to run, so that most of the prompt is taken over.
  decode::Session& kept_session(const Case& of);

  // Decodes from `history` on, and adds what happened to trace.
  void decode(decode::Session& session, std::span<const int32_t> history, const Case& of,
              const How& how, Trace& trace);

  // Compares an arm with its plain run and adds it to a line.
  void judge(Line& line, const Case& of, const Trace& arm);

 private:
  std::shared_ptr<const model::Model> model_;
  std::shared_ptr<kernels::Backend> backend_, plain_backend_;
  int64_t tokens_;
  std::vector<std::pair<Case, std::unique_ptr<Trace>>> plains_;
  std::vector<std::pair<Case, std::unique_ptr<decode::Session>>> sessions_;
};

// Says in line.unexercised what of `needs` did not happen.
void check_needs(Line& line, const Needs& needs);

}  // namespace lockstep::app
