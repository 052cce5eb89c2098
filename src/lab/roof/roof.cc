#include "lab/roof/roof.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep::lab::roof {

Roof compute_roof(const Shape& shape, const RoofOptions& options) {
  Roof roof;
  std::vector<KvType> types;
  for (const std::string& name : options.kv_types) {
    const std::optional<KvType> type = find_kv_type(name);
    if (!type) {
      throw Error(ExitCode::bad_use, fmt::format("KV type {}: not known; there are {}",
                                                 shorten(name), kv_type_names()));
    }
    const auto bytes = kv_bytes_per_position(shape.kv, *type);
    if (!bytes) {
      roof.notes.push_back(fmt::format(
          "{} left out: a head is no whole number of its {}-element blocks", name, type->block));
      continue;
    }
    types.push_back(*type);
    if (!shape.kv.empty()) roof.kv_per_position.emplace_back(name, *bytes);
  }
  if (types.empty()) {
    throw Error(ExitCode::bad_use,
                "no KV type is left that fits the model's heads; give --kv-types f16");
  }
  if (shape.kv.empty()) {
    types.resize(1);
    roof.notes.push_back("no KV in the shape: the depth costs nothing here");
  }
  if (options.unique && shape.experts == 0) {
    throw Error(ExitCode::bad_use, "--unique: this model routes to no experts");
  }
  for (const int64_t width : options.widths) {
    if (options.unique) {
      const auto most = static_cast<double>(std::min(shape.experts, width * shape.used));
      if (*options.unique < static_cast<double>(shape.used) || *options.unique > most) {
        throw Error(ExitCode::bad_use,
                    fmt::format("--unique {}: a pass of {} rows meets {} to {} experts",
                                *options.unique, width, shape.used, most));
      }
    }
    for (const int64_t depth : options.depths) {
      for (const KvType& type : types) {
        RoofRow row;
        row.width = width;
        row.depth = depth;
        row.kv_type = shape.kv.empty() ? "" : std::string(type.name);
        row.measured = options.unique.has_value();
        if (shape.experts > 0) {
          row.unique =
              options.unique ? *options.unique : expected_experts(shape.experts, shape.used, width);
        }
        row.weight_bytes = shape.weight_bytes(width, row.unique);
        row.kv_bytes = kv_bytes_at(shape.kv, type, depth).value_or(0);
        const double bytes = row.weight_bytes + row.kv_bytes;
        row.ms = bytes / options.gb_s / 1e6;
        row.passes_s = options.gb_s * 1e9 / bytes;
        row.tok_s = row.passes_s * static_cast<double>(width);
        roof.rows.push_back(row);
      }
    }
  }
  return roof;
}

std::string roof_text(const Shape& shape, const RoofOptions& options, const Roof& roof) {
  std::string out =
      fmt::format("ceilings at {:g} GB/s: what is read, divided by the bandwidth\n", options.gb_s);
  if (!roof.kv_per_position.empty()) {
    out += "KV bytes a position:";
    for (const auto& [type, bytes] : roof.kv_per_position)
      out += fmt::format("  {} {}", type, bytes);
    out += "\n";
  }
  const bool mixture = shape.experts > 0;
  if (mixture) {
    out += fmt::format(
        "experts: {} of {} a token, {:.3f} MB each over all layers; {}\n", shape.used,
        shape.experts, shape.expert_bytes / 1e6,
        options.unique
            ? "how many a pass meets was given"
            : "random routing (real routing is correlated: give --unique with a measured count)");
  }
  out += fmt::format(
      "\n  width   depth  KV      {}weights GB    KV GB  pass ms  passes/s  tok/s at most\n",
      mixture ? "experts  " : "");
  for (const RoofRow& row : roof.rows) {
    out += fmt::format("  {:>5} {:>7}  {:<6}  {}{:>10.3f} {:>8.3f} {:>8.3f} {:>9.2f} {:>14.2f}\n",
                       row.width, row.depth, row.kv_type,
                       mixture ? fmt::format("{:>7.2f}  ", row.unique) : "", row.weight_bytes / 1e9,
                       row.kv_bytes / 1e9, row.ms, row.passes_s, row.tok_s);
  }
  out +=
      "\nat most: every row of a pass a token that counts. Activations, KV writes and work are "
      "left out.\n";
  for (const std::string& note : roof.notes) out += "note: " + escape(note, 300) + "\n";
  return out;
}

}  // namespace lockstep::lab::roof
