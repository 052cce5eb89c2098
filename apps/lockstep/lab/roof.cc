// lockstep lab roof: the most tokens a second that a bandwidth allows.
#include "lab/roof/roof.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli.h"
#include "lab/lab.h"
#include "output.h"

namespace lockstep::app {
namespace {

using namespace lab::roof;

struct Options {
  std::string what;
  std::optional<double> bandwidth, unique;
  std::optional<std::vector<int64_t>> depths, widths;
  std::optional<std::string> kv_types;
  bool json = false;
};

Json roof_json(const std::string& what, const Shape& shape, const RoofOptions& options,
               const Roof& roof) {
  Json kv = Json::array(), per_position = Json::object(), rows = Json::array(), notes = roof.notes;
  for (const KvGroup& g : shape.kv) {
    kv.push_back({{"layers", g.layers},
                  {"heads", g.heads},
                  {"key_dim", g.key_dim},
                  {"value_dim", g.value_dim},
                  {"window", g.window}});
  }
  for (const auto& [type, bytes] : roof.kv_per_position) per_position[type] = bytes;
  for (const RoofRow& r : roof.rows) {
    rows.push_back({{"width", r.width},
                    {"depth", r.depth},
                    {"kv_type", r.kv_type},
                    {"unique_experts", shape.experts > 0 ? Json(r.unique) : Json()},
                    {"weight_bytes", r.weight_bytes},
                    {"kv_bytes", r.kv_bytes},
                    {"bytes", r.weight_bytes + r.kv_bytes},
                    {"pass_ms", r.ms},
                    {"passes_s", r.passes_s},
                    {"tok_s", r.tok_s}});
  }
  return {{"schema", "lockstep.lab.roof/1"},
          {"of", escape(what)},
          {"bandwidth_gb_s", options.gb_s},
          {"shape",
           {{"bytes", shape.bytes},
            {"row_bytes", shape.row_bytes},
            {"experts", shape.experts},
            {"used", shape.used},
            {"expert_bytes", shape.expert_bytes},
            {"kv", kv}}},
          {"routing", shape.experts == 0 ? Json() : Json(options.unique ? "measured" : "random")},
          {"kv_bytes_per_position", per_position},
          {"rows", rows},
          {"notes", notes}};
}

ExitCode roof(const Options& given) {
  if (given.what.empty())
    bad_use("no model and no shape; give a GGUF file or bytes=17.6e9,kv=16x4x256");
  if (!given.bandwidth)
    bad_use("no bandwidth; give --bandwidth in GB/s (lockstep bench reads this machine's)");
  RoofOptions options;
  options.gb_s = *given.bandwidth;
  options.depths = given.depths.value_or(std::vector<int64_t>{0, 4096, 32768});
  options.widths = given.widths.value_or(std::vector<int64_t>{1, 2, 4, 8});
  options.unique = given.unique;
  std::string_view types = given.kv_types ? std::string_view(*given.kv_types) : "f16,q8_0,q4_0";
  while (!types.empty()) {
    const std::string_view type = types.substr(0, types.find(','));
    types.remove_prefix(std::min(types.size(), type.size() + 1));
    options.kv_types.emplace_back(type);
  }
  std::error_code ignored;
  const bool is_shape =
      given.what.find('=') != std::string::npos && !std::filesystem::exists(given.what, ignored);
  const Shape shape = is_shape ? parse_shape(given.what)
                               : shape_of_inspected(inspect_model(given.what), given.what);
  const Roof result = compute_roof(shape, options);
  if (given.json) {
    print_json(roof_json(given.what, shape, options, result));
  } else {
    print(roof_text(shape, options, result));
  }
  return ExitCode::ok;
}

}  // namespace

Runner set_up_lab_roof(Flags& flags) {
  const auto options = std::make_shared<Options>();
  flags.number("--bandwidth", options->bandwidth, 1e-3, 1e9);
  flags.integers("--depth", options->depths, 0, int64_t{1} << 40);
  flags.integers("--width", options->widths, 1, 65536);
  flags.text("--kv-types", options->kv_types);
  flags.number("--unique", options->unique, 1, 1e6);
  flags.toggle("--json", options->json);
  flags.positional(
      "MODEL|SHAPE",
      "a GGUF file, or a shape: bytes=N[,row=N][,experts=E/k,expert=N][,kv=LxHxD[wW]+...]",
      options->what);
  flags.describe(
      "The most tokens a second that a memory bandwidth allows, by depth, KV type, rows of a pass "
      "and "
      "experts met: the bytes that a pass must read, over the bandwidth.",
      "lockstep lab roof bytes=17.6e9,kv=16x4x256 --bandwidth 640 --depth 0,52000 --kv-types q8_0");
  return [options] { return roof(*options); };
}

}  // namespace lockstep::app
