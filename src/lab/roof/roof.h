// The most tokens a second that a memory bandwidth allows (a roofline with one roof: decoding one
// stream reads far more than it computes; Williams, Waterman, Patterson, "Roofline", CACM 52(4),
// 2009).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/roof/shape.h"

namespace lockstep::lab::roof {

struct RoofOptions {
  double gb_s = 0;  // 1e9 bytes a second
  std::vector<int64_t> depths, widths;
  std::vector<std::string> kv_types;
  std::optional<double> unique;  // measured different experts a layer in a pass
};

struct RoofRow {
  int64_t width = 0;
  int64_t depth = 0;
  std::string kv_type;
  double unique = 0;      // experts a layer; 0 without a mixture
  bool measured = false;  // unique was given; else random routing, or one token's own
  double weight_bytes = 0, kv_bytes = 0;
  double ms = 0;  // of a pass, at least
  double passes_s = 0;
  double tok_s = 0;  // at most: every row a token that counts
};

struct Roof {
  std::vector<RoofRow> rows;
  std::vector<std::pair<std::string, int64_t>> kv_per_position;
  std::vector<std::string> notes;
};

// Throws Error(bad_use) for a KV type that is not known or does not fit the heads, and for a
// measured count that the widths cannot have.
Roof compute_roof(const Shape& shape, const RoofOptions& options);

std::string roof_text(const Shape& shape, const RoofOptions& options, const Roof& roof);

// A shape from what `lockstep inspect --json` prints of a model file. Throws Error(bad_file) where
// the object does not say enough. source: what messages call it.
Shape shape_of_inspected(const std::string& json, const std::string& source);

// Asks the program itself: `/proc/self/exe inspect -m PATH --json`. Throws Error with what it said.
std::string inspect_model(const std::string& path);

}  // namespace lockstep::lab::roof
