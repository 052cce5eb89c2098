#include "prove/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace lockstep::app {
namespace {

std::string short_hash(const Digest& digest) {
  return to_hex(digest).substr(0, 16);
}

// Where two rows differ first, as "element 17: 1.25 (3fa00000)" for each side.
std::optional<Difference> row_difference(int64_t position, const Trace& plain, const Trace& other) {
  Difference difference{Difference::Kind::logits, position,
                        "row " + short_hash(plain.rows.at(position)),
                        "row " + short_hash(other.rows.at(position))};
  const auto a = plain.row_values.find(position), b = other.row_values.find(position);
  if (a == plain.row_values.end() || b == other.row_values.end()) return difference;
  for (size_t i = 0; i < a->second.size(); ++i) {
    const auto x = std::bit_cast<uint32_t>(a->second[i]), y = std::bit_cast<uint32_t>(b->second[i]);
    if (x == y) continue;
    difference.plain += fmt::format(", element {}: {} ({:08x})", i, a->second[i], x);
    difference.other += fmt::format(", element {}: {} ({:08x})", i, b->second[i], y);
    break;
  }
  return difference;
}

}  // namespace

void Recorder::on_logits(int64_t position, std::span<const float> row) {
  const Digest hash = sha256(std::as_bytes(row));
  trace_.rows[position] = hash;
  bool keep = plain_ == nullptr;
  if (plain_ && trace_.row_values.empty()) {
    const auto mine = plain_->rows.find(position);
    keep = mine != plain_->rows.end() && mine->second != hash;
  }
  if (keep) trace_.row_values[position].assign(row.begin(), row.end());
}

void Recorder::on_pass(int64_t rows, const state::KvCache& kv) {
  ++trace_.widths[rows];
  const int64_t size = kv.size();
  const Digest hash = kv.hash();
  trace_.states[size] = hash;
  if (!plain_) {
    trace_.positions[size - 1] = kv.hash_position(size - 1);
    return;
  }
  const auto mine = plain_->states.find(size);
  if (trace_.first_bad_position || mine == plain_->states.end() || mine->second == hash) return;
  // The plain run took each position's hash when all layers saw it; so must we.
  int64_t first = 0;
  for (const state::KvLayerSpec& layer : kv.spec().layers) {
    if (layer.window > 0) first = std::max(first, size - layer.window + 1);
  }
  trace_.first_bad_position = size - 1;
  for (int64_t p = first; p < size; ++p) {
    const auto position = plain_->positions.find(p);
    if (position == plain_->positions.end() || position->second == kv.hash_position(p)) continue;
    trace_.first_bad_position = p;
    break;
  }
}

std::string_view difference_kind_name(Difference::Kind kind) {
  static constexpr std::string_view kNames[] = {"KV", "logits", "token", "fault"};
  return kNames[static_cast<size_t>(kind)];
}

Compared compare(const Trace& plain, const Trace& other) {
  Compared result;
  // A row at position p is computed from what was remembered below p, and chooses token p: so of
  // one position, its row comes before its token, and both before its keys and values.
  const auto earlier = [&](int64_t position) {
    return !result.first || position < result.first->position;
  };
  for (const auto& [position, hash] : other.rows) {
    const auto mine = plain.rows.find(position);
    if (mine == plain.rows.end()) continue;
    ++result.rows;
    if (mine->second != hash && earlier(position)) {
      result.first = row_difference(position, plain, other);
    }
  }
  for (const auto& [position, token] : other.tokens) {
    const auto mine = plain.tokens.find(position);
    if (mine == plain.tokens.end()) continue;
    ++result.tokens;
    if (mine->second != token && earlier(position)) {
      result.first = {Difference::Kind::token, position, std::to_string(mine->second),
                      std::to_string(token)};
    }
  }
  for (const auto& [size, hash] : other.states) {
    const auto mine = plain.states.find(size);
    if (mine == plain.states.end()) continue;
    ++result.states;
    if (mine->second == hash) continue;
    const int64_t position = std::min(size - 1, other.first_bad_position.value_or(size - 1));
    if (earlier(position)) {
      result.first = {Difference::Kind::kv, position,
                      fmt::format("pages at size {} {}", size, short_hash(mine->second)),
                      fmt::format("pages at size {} {}", size, short_hash(hash))};
    }
  }
  if (plain.fault != other.fault && !result.first) {
    // A fault leaves no row and no token of its own: it comes after the last state.
    const int64_t end = other.states.empty() ? 0 : other.states.rbegin()->first;
    result.first = {Difference::Kind::fault, end, plain.fault.empty() ? "none" : plain.fault,
                    other.fault.empty() ? "none" : other.fault};
  }
  return result;
}

}  // namespace lockstep::app
