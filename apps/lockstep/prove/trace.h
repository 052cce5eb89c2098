// What a run did, position by position, and the comparison of two of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "decode/session.h"

namespace lockstep::app {

struct Trace {
  std::map<int64_t, int32_t> tokens;  // position: token chosen there
  std::map<int64_t, Digest> rows;     // position: hash of the logits row that chose it
  std::map<int64_t, Digest> states;   // size: hash of all KV pages after a pass
  std::string fault;                  // what the run ended with, "" if nothing

  // To name the place of a difference. The plain run keeps every row and every position's hash, the
  // other run what differed first.
  std::map<int64_t, std::vector<float>> row_values;
  std::map<int64_t, Digest> positions;  // of the newest position of each state
  std::optional<int64_t> first_bad_position;

  // What was exercised.
  int64_t proposed = 0, accepted = 0, pages_reused = 0;
  std::map<int64_t, int64_t> widths;  // rows of a pass: how many passes had as many
};

// Fills a trace, from a Session or by hand. With a plain trace to compare with, it keeps what is
// needed to name the first difference.
class Recorder final : public decode::Inspector {
 public:
  // rows false: no logits rows are asked for, as where nobody looks at them.
  explicit Recorder(Trace& trace, const Trace* plain = nullptr, bool rows = true)
      : trace_(trace), plain_(plain), rows_(rows) {}
  void on_logits(int64_t position, std::span<const float> row) override;
  void on_pass(int64_t rows, const state::KvCache& kv) override;
  bool wants_rows() const override { return rows_; }

 private:
  Trace& trace_;
  const Trace* plain_;
  bool rows_;
};

struct Difference {
  enum class Kind : uint8_t { kv, logits, token, fault };
  Kind kind = Kind::token;
  int64_t position = 0;
  std::string plain, other;  // both values
};
std::string_view difference_kind_name(Difference::Kind kind);

struct Compared {
  int64_t tokens = 0, rows = 0, states = 0;  // how many were there on both sides
  std::optional<Difference> first;           // the earliest position at which they differ
};
// Compares what both have.
Compared compare(const Trace& plain, const Trace& other);

}  // namespace lockstep::app
