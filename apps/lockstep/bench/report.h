// Rows of `bench` as Markdown, CSV and JSON.
#pragma once

#include <optional>
#include <string>

#include "bench/runner.h"
#include "output.h"

namespace lockstep::app {

struct BenchReport {
  std::optional<double> slow_below;  // GB/s

  std::string state(const BenchRow& row) const;  // "slow", "fast"; "" without slow_below

  std::string md_header() const;
  std::string md_row(const BenchRow& row) const;
  static std::string md_ops(const BenchRow& row);

  // With everything that the speed depends on, so that a row stands for itself.
  Json json_row(const BenchRow& row, const Json& identity, bool synthetic) const;

  // A row as JSON: names of the columns, and the values. Lists are joined by ";", identity gives a
  // column for each of its fields.
  static std::string csv_header(const Json& row);
  static std::string csv_row(const Json& row);
};

}  // namespace lockstep::app
