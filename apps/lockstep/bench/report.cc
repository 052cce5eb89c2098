#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "engine.h"

namespace lockstep::app {
namespace {

// GB/s of bytes in milliseconds; 0 where no time was measured.
double rate(double bytes, double ms) {
  return ms > 0 ? bytes / (ms * 1e6) : 0;
}

Json ops_json(const OpProfile& profile) {
  const auto passes = static_cast<double>(profile.passes);
  Json list = Json::array();
  for (const OpTotal& op : profile.ops) {
    list.push_back({{"kind", op.kind},
                    {"name", op.name},
                    {"calls", op.calls / profile.passes},
                    {"ms", op.ms / passes},
                    {"percent", 100 * op.ms / profile.pass_ms},
                    {"bytes", op.bytes.total() / profile.passes},
                    {"weight_bytes", op.bytes.weights / profile.passes},
                    {"kv_bytes", op.bytes.kv / profile.passes},
                    {"gb_s", rate(static_cast<double>(op.bytes.total()), op.ms)}});
  }
  const double other = profile.pass_ms - profile.ops_ms();
  return {{"passes", profile.passes},
          {"pass_ms", profile.pass_ms / passes},
          {"list", list},
          {"other_ms", other / passes},
          {"other_percent", 100 * other / profile.pass_ms}};
}

void for_each_column(const Json& row,
                     const std::function<void(const std::string&, const Json&)>& take) {
  for (const auto& [key, value] : row.items()) {
    if (key == "schema" || key == "ops") continue;
    if (!value.is_object()) {
      take(key, value);
      continue;
    }
    for (const auto& [inner, field] : value.items()) take(inner, field);
  }
}

std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  if (value.is_array()) {
    std::string out;
    for (const Json& element : value) out += (out.empty() ? "" : ";") + element.dump();
    return out;
  }
  if (!value.is_string()) return value.dump();
  std::string out = "\"";
  for (const char c : value.get<std::string>()) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

}  // namespace

std::string BenchReport::state(const BenchRow& row) const {
  if (!slow_below) return "";
  return row.read_gb_s() < *slow_below ? "slow" : "fast";
}

std::string BenchReport::md_header() const {
  std::string head =
      "| test             | threads | rows |   ms a pass |       min |       max |     tok/s | "
      "bytes "
      "a pass |   GB/s | read GB/s | of read |";
  std::string rule =
      "| :--------------- | ------: | ---: | ----------: | --------: | --------: | --------: | "
      "-----------: | -----: | --------: | ------: |";
  if (slow_below) {
    head += " state |";
    rule += " :---- |";
  }
  return head + "\n" + rule + "\n";
}

std::string BenchReport::md_row(const BenchRow& row) const {
  const auto [least, greatest] = std::minmax_element(row.ms.begin(), row.ms.end());
  std::string out = fmt::format(
      "| {:<16} | {:>7} | {:>4} | {:>11.3f} | {:>9.3f} | {:>9.3f} | {:>9.2f} | {:>12} | {:>6.2f} | "
      "{:>9.2f} | {:>5.1f} % |",
      row.test.name(), row.threads, row.test.width(), row.ms_median(), *least, *greatest,
      row.tokens_per_second(), human_bytes(static_cast<double>(row.bytes_per_pass())), row.gb_s(),
      row.read_gb_s(), 100 * row.fraction());
  if (slow_below) out += fmt::format(" {:<5} |", state(row));
  return out + "\n";
}

std::string BenchReport::md_ops(const BenchRow& row) {
  const OpProfile& profile = *row.profile;
  const auto passes = static_cast<double>(profile.passes);
  std::string out = fmt::format(
      "\nops of {}, {} thread{}: {:.3f} ms a pass over {} watched pass{}\n\n"
      "| op          | name             | calls |   ms a pass | of pass | bytes a pass |   GB/s |\n"
      "| :---------- | :--------------- | ----: | ----------: | ------: | -----------: | -----: "
      "|\n",
      row.test.name(), row.threads, row.threads == 1 ? "" : "s", profile.pass_ms / passes,
      profile.passes, profile.passes == 1 ? "" : "es");
  for (const OpTotal& op : profile.ops) {
    const auto bytes = static_cast<double>(op.bytes.total());
    out +=
        fmt::format("| {:<11} | {:<16} | {:>5} | {:>11.4f} | {:>5.1f} % | {:>12} | {:>6.2f} |\n",
                    op.kind, op.name, op.calls / profile.passes, op.ms / passes,
                    100 * op.ms / profile.pass_ms, human_bytes(bytes / passes), rate(bytes, op.ms));
  }
  const double other = profile.pass_ms - profile.ops_ms();
  return out +
         fmt::format("| {:<11} | {:<16} | {:>5} | {:>11.4f} | {:>5.1f} % | {:>12} | {:>6} |\n",
                     "other", "between the ops", "", other / passes, 100 * other / profile.pass_ms,
                     "", "");
}

Json BenchReport::json_row(const BenchRow& row, const Json& identity, bool synthetic) const {
  const auto [least, greatest] = std::minmax_element(row.ms.begin(), row.ms.end());
  const std::string label = state(row);
  Json out{{"test", row.test.name()},
           {"kind", row.test.kind_name()},
           {"tokens", row.test.tokens},
           {"depth", row.test.depth},
           {"width", row.test.width()},
           {"passes", row.passes},
           {"repetitions", row.ms.size()},
           {"ms", row.ms_median()},
           {"ms_min", *least},
           {"ms_max", *greatest},
           {"ms_list", row.ms},
           {"tok_s", row.tokens_per_second()},
           {"bytes", row.bytes_per_pass()},
           {"weight_bytes", row.bytes.weights / row.passes},
           {"kv_bytes", row.bytes.kv / row.passes},
           {"gb_s", row.gb_s()},
           {"read_gb_s", row.read_gb_s()},
           {"read_gb_s_list", row.readings},
           {"fraction", row.fraction()},
           {"state", label.empty() ? Json() : Json(label)},
           {"identity", identity},
           {"synthetic", synthetic}};
  if (row.profile) out["ops"] = ops_json(*row.profile);
  return out;
}

std::string BenchReport::csv_header(const Json& row) {
  std::string out;
  for_each_column(
      row, [&](const std::string& name, const Json&) { out += (out.empty() ? "" : ",") + name; });
  return out + "\n";
}

std::string BenchReport::csv_row(const Json& row) {
  std::string out;
  bool first = true;
  for_each_column(row, [&](const std::string&, const Json& value) {
    if (!first) out += ",";
    out += csv_field(value);
    first = false;
  });
  return out + "\n";
}

}  // namespace lockstep::app
