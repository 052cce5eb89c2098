// lockstep inspect: what is in a model file, and what a token costs.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "base/memory_bandwidth.h"
#include "base/sha256.h"
#include "cli.h"
#include "engine.h"
#include "model/architecture.h"
#include "output.h"
#include "text/utf8_stream.h"

namespace lockstep::app {
namespace {

constexpr size_t kShownElements = 8;  // of an array, in text
constexpr size_t kJsonElements = 64;  // longer arrays are given by type and length
constexpr int64_t kWidths[] = {1, 2, 4, 8, 16};

struct InspectOptions {
  EngineOptions engine;
  std::optional<double> bandwidth;  // GB/s
  bool ceiling = false;             // --bandwidth was given, with or without a number
  bool json = false;
};

Json element_json(const gguf::Array& array, size_t i) {
  return std::visit(
      [&](const auto& elements) -> Json {
        using T = typename std::decay_t<decltype(elements)>::value_type;
        if constexpr (std::is_same_v<T, std::shared_ptr<const gguf::Array>>) {
          return fmt::format("array of {}", elements[i]->size());
        } else if constexpr (std::is_same_v<T, std::string_view>) {
          return text::well_formed_utf8(elements[i].substr(0, 4096));
        } else {
          return T(elements[i]);
        }
      },
      array.elements);
}

Json array_json(const gguf::Array& array) {
  Json out{{"element_type", gguf::value_type_name(array.element_type)}, {"length", array.size()}};
  if (array.size() <= kJsonElements) {
    Json elements = Json::array();
    for (size_t i = 0; i < array.size(); ++i) elements.push_back(element_json(array, i));
    out["elements"] = std::move(elements);
  }
  return out;
}

Json value_json(const gguf::Value& value) {
  return std::visit(
      [](const auto& data) -> Json {
        using T = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<T, std::shared_ptr<const gguf::Array>>) {
          return array_json(*data);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return text::well_formed_utf8(data);
        } else {
          return data;
        }
      },
      value.data);
}

std::string value_text(const gguf::Value& value) {
  if (const auto* array = std::get_if<std::shared_ptr<const gguf::Array>>(&value.data)) {
    std::string out =
        fmt::format("{}[{}]:", gguf::value_type_name((*array)->element_type), (*array)->size());
    for (size_t i = 0; i < std::min(kShownElements, (*array)->size()); ++i) {
      const Json element = element_json(**array, i);
      out +=
          " " + (element.is_string() ? fmt::format("\"{}\"", escape(element.get<std::string>(), 40))
                                     : element.dump());
    }
    return out + ((*array)->size() > kShownElements ? " ..." : "");
  }
  if (const auto* text = std::get_if<std::string>(&value.data)) {
    return fmt::format("\"{}\"", escape(*text, 160));
  }
  return value_json(value).dump();
}

struct TypeCount {
  int64_t tensors = 0, elements = 0, bytes = 0;
};

std::map<std::string, TypeCount> count_types(const gguf::File& file) {
  std::map<std::string, TypeCount> types;
  for (const gguf::Tensor& tensor : file.tensors()) {
    TypeCount& count = types[std::string(gguf::type_info(tensor.type).name)];
    ++count.tensors;
    count.elements += tensor.ne[0] * tensor.rows();
    count.bytes += static_cast<int64_t>(tensor.data.size());
  }
  return types;
}

Digest hash_file(const gguf::File& file) {
  constexpr size_t kStep = 64 << 20;  // bytes between two looks at the progress
  Sha256 hash;
  Progress progress;
  size_t done = 0;
  for (std::span<const std::byte> part : file.parts()) {
    while (!part.empty()) {
      const size_t step = std::min(part.size(), kStep);
      hash.update(part.first(step));
      part = part.subspan(step);
      done += step;
      progress.show(fmt::format("hashing: {} of {}", human_bytes(static_cast<double>(done)),
                                human_bytes(static_cast<double>(file.total_bytes()))));
    }
  }
  return hash.finish();
}

// What a pass has to read: weights once for all its rows, and the remembered keys and values once.
struct Costs {
  std::vector<int64_t> depths;
  struct Row {
    int64_t width, depth, bytes;
  };
  std::vector<Row> rows;
  std::vector<std::pair<std::string, int64_t>> kv_bytes;  // KV type, bytes a position
};

Costs costs_of(const model::Model& model) {
  using kernels::KvType;
  Costs costs;
  const int64_t context = model.hyperparameters().n_ctx_train;
  for (const int64_t depth : {int64_t{0}, int64_t{512}, int64_t{4096}, int64_t{32768}}) {
    if (depth < context) costs.depths.push_back(depth);
  }
  costs.depths.push_back(context);
  const state::KvSpec spec = model.kv_spec(KvType::f16, KvType::f16, context);
  for (const int64_t width : kWidths) {
    for (const int64_t depth : costs.depths) {
      costs.rows.push_back(
          {width, depth, model.weight_bytes_per_pass(width) + model.kv_bytes_read(spec, depth)});
    }
  }
  for (const KvType type : kernels::kKvTypes) {
    const int64_t block = kernels::kv_block_elements(type);
    if (std::any_of(spec.layers.begin(), spec.layers.end(),
                    [block](const auto& layer) { return layer.head_dim % block != 0; })) {
      continue;
    }
    costs.kv_bytes.emplace_back(kernels::kv_type_name(type),
                                state::bytes_per_position(model.kv_spec(type, type, context)));
  }
  return costs;
}

Json hyperparameters_json(const model::Hyperparameters& h) {
  return {{"n_vocab", h.n_vocab},     {"n_ctx_train", h.n_ctx_train},
          {"n_layer", h.n_layer},     {"n_embd", h.n_embd},
          {"n_ff", h.n_ff},           {"n_head", h.n_head},
          {"n_head_kv", h.n_head_kv}, {"head_dim", h.head_dim},
          {"window", h.window},       {"tied_embeddings", h.tied_embeddings}};
}

// The read bandwidth that the ceiling is for.
struct Bandwidth {
  double gb_s = 0;
  int threads = 0;     // of the CPU that measured it; 0: it was given, or a device's
  std::string device;  // whose own memory it is
};

std::optional<Bandwidth> choose_bandwidth(const InspectOptions& options) {
  if (!options.ceiling) return std::nullopt;
  if (options.bandwidth) return Bandwidth{*options.bandwidth, 0, ""};
  constexpr int kReadings = 15;
  std::vector<double> readings;
  const auto median = [&] {
    std::nth_element(readings.begin(), readings.begin() + kReadings / 2, readings.end());
    return readings[kReadings / 2];
  };
  if (options.engine.device) {
    const auto backend = open_backend(options.engine);
    const std::string name = backend->info().name;
    if (!name.empty()) {
      for (int i = 0; i < kReadings; ++i) readings.push_back(backend->read_gb_s());
      return Bandwidth{median(), 0, name};
    }
  }
  BandwidthMeter meter(default_threads());
  for (int i = 0; i < kReadings; ++i) readings.push_back(meter.read().gb_s);
  return Bandwidth{median(), meter.threads(), ""};
}

// What `run` would say of the file, and why it would refuse its tokenizer.
std::vector<std::string> notes_of(const model::Model& model) {
  std::vector<std::string> notes = model.notes();
  try {
    const auto tokenizer = text::Tokenizer::load(model.file());
    notes.insert(notes.end(), tokenizer.notes().begin(), tokenizer.notes().end());
  } catch (const Error& error) {
    notes.push_back(fmt::format("the tokenizer cannot be used: {}", error.what()));
  }
  return notes;
}

Json inspect_json(const gguf::File& file, const std::string& architecture,
                  const model::Model* model, const std::optional<Bandwidth>& bandwidth) {
  Json types = Json::array();
  int64_t parameters = 0;
  for (const auto& [name, count] : count_types(file)) {
    types.push_back({{"type", name},
                     {"tensors", count.tensors},
                     {"elements", count.elements},
                     {"bytes", count.bytes}});
    parameters += count.elements;
  }
  Json metadata = Json::array();
  for (const auto& [key, value] : file.metadata()) {
    metadata.push_back({{"key", text::well_formed_utf8(key)},
                        {"type", gguf::value_type_name(value.type)},
                        {"value", value_json(value)}});
  }
  Json tensors = Json::array();
  for (const gguf::Tensor& tensor : file.tensors()) {
    tensors.push_back({{"name", text::well_formed_utf8(tensor.name)},
                       {"type", gguf::type_info(tensor.type).name},
                       {"ne", std::vector<int64_t>(tensor.ne, tensor.ne + tensor.n_dims)},
                       {"bytes", tensor.data.size()}});
  }
  Json notes = Json::array();
  if (model) {
    for (const std::string& line : notes_of(*model)) notes.push_back(text::well_formed_utf8(line));
  }
  Json out{{"schema", "lockstep.inspect/1"},
           {"file", text::well_formed_utf8(file.name())},
           {"sha256", to_hex(hash_file(file))},
           {"gguf_version", file.version()},
           {"bytes", file.total_bytes()},
           {"parts", file.parts().size()},
           {"alignment", file.alignment()},
           {"architecture", text::well_formed_utf8(architecture)},
           {"runnable", model != nullptr},
           {"synthetic", model ? Json(model->synthetic()) : Json()},
           {"parameters", parameters},
           {"hyperparameters", model ? hyperparameters_json(model->hyperparameters()) : Json()},
           {"tensor_types", types},
           {"pass_bytes", Json()},
           {"kv_bytes_per_position", Json()},
           {"ceiling", Json()},
           {"notes", notes},
           {"metadata", metadata},
           {"tensors", tensors}};
  if (!model) return out;
  const Costs costs = costs_of(*model);
  Json passes = Json::array(), kv = Json::object(), ceiling = Json::array();
  for (const Costs::Row& row : costs.rows) {
    passes.push_back({{"width", row.width}, {"depth", row.depth}, {"bytes", row.bytes}});
    if (bandwidth && row.width == 1) {
      ceiling.push_back({{"depth", row.depth},
                         {"tok_s", bandwidth->gb_s * 1e9 / static_cast<double>(row.bytes)}});
    }
  }
  for (const auto& [type, bytes] : costs.kv_bytes) kv[type] = bytes;
  out["pass_bytes"] = passes;
  out["kv_bytes_per_position"] = kv;
  if (bandwidth) {
    out["ceiling"] = {{"bandwidth_gb_s", bandwidth->gb_s},
                      {"measured_threads", bandwidth->threads ? Json(bandwidth->threads) : Json()},
                      {"device", bandwidth->device.empty() ? Json() : Json(bandwidth->device)},
                      {"rows", ceiling}};
  }
  return out;
}

std::string costs_text(const Costs& costs, const std::optional<Bandwidth>& bandwidth) {
  std::string out =
      "\nbytes a pass must read (KV f16), by rows of the pass and remembered positions\n";
  out += fmt::format("  {:>8}", "width");
  for (const int64_t depth : costs.depths)
    out += fmt::format("  {:>12}", fmt::format("at {}", depth));
  for (size_t i = 0; i < costs.rows.size(); ++i) {
    if (i % costs.depths.size() == 0) out += fmt::format("\n  {:>8}", costs.rows[i].width);
    out += fmt::format("  {:>12}", human_bytes(static_cast<double>(costs.rows[i].bytes)));
  }
  out += "\n\nKV bytes a position:";
  for (const auto& [type, bytes] : costs.kv_bytes) out += fmt::format("  {} {}", type, bytes);
  out += "\n";
  if (bandwidth) {
    out +=
        !bandwidth->device.empty() ? fmt::format("\nceiling at {:.0f} GB/s, read just now by {}",
                                                 bandwidth->gb_s, bandwidth->device)
        : bandwidth->threads == 0
            ? fmt::format("\nceiling at {} GB/s", bandwidth->gb_s)
            : fmt::format("\nceiling at {:.1f} GB/s, read just now by {} thread{}", bandwidth->gb_s,
                          bandwidth->threads, bandwidth->threads == 1 ? "" : "s");
    out += ", tokens a second one at a time:";
    for (const Costs::Row& row : costs.rows) {
      if (row.width != 1) continue;
      out += fmt::format("  {:.1f} (at {})", bandwidth->gb_s * 1e9 / static_cast<double>(row.bytes),
                         row.depth);
    }
    out += "\n";
  }
  return out;
}

std::string inspect_text(const gguf::File& file, const std::string& architecture,
                         const model::Model* model, const std::optional<Bandwidth>& bandwidth) {
  const auto types = count_types(file);
  int64_t parameters = 0;
  for (const auto& [name, count] : types) parameters += count.elements;
  std::string out = fmt::format(
      "file          {}\nsha256        {}\nGGUF version  {}, {} in {} part{}, alignment {}\n"
      "architecture  {}{}\nparameters    {}\n",
      escape(file.name()), to_hex(hash_file(file)), file.version(),
      human_bytes(static_cast<double>(file.total_bytes())), file.parts().size(),
      file.parts().size() == 1 ? "" : "s", file.alignment(), escape(architecture, 100),
      model && model->synthetic() ? " (synthetic weights)" : "", parameters);
  if (model) {
    out += "shape        ";
    const Json shape = hyperparameters_json(model->hyperparameters());
    for (const auto& [key, value] : shape.items()) out += fmt::format(" {}={}", key, value.dump());
    out += "\n";
    for (const std::string& line : notes_of(*model)) out += "note          " + escape(line) + "\n";
  }
  out += fmt::format("\nmetadata ({})\n", file.metadata().size());
  for (const auto& [key, value] : file.metadata()) {
    out += fmt::format("  {:<44} {}\n", escape(key, 200), value_text(value));
  }
  out += fmt::format("\ntensors ({})\n", file.tensors().size());
  for (const auto& [name, count] : types) {
    out += fmt::format("  {:<8} {:>6} tensors  {:>14} elements  {:>10}\n", name, count.tensors,
                       count.elements, human_bytes(static_cast<double>(count.bytes)));
  }
  if (model) out += costs_text(costs_of(*model), bandwidth);
  return out;
}

ExitCode inspect(const InspectOptions& options) {
  check_device_name(options.engine);
  if (options.engine.device && (!options.ceiling || options.bandwidth)) {
    note("--device: nothing is measured; give --bandwidth without a number to read its memory");
  }
  const gguf::File file = open_model_source(options.engine);
  const std::string architecture = file.string("general.architecture").value_or("");
  std::shared_ptr<const model::Model> model;
  if (model::find_architecture(architecture)) {
    model = model::Model::load(file);
  } else {
    std::string known;
    for (const std::string_view name : model::architecture_names()) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", name);
    }
    note(fmt::format(
        "architecture \"{}\" is not one of this version ({}): the file is shown, but cannot be run",
        architecture, known));
  }
  const std::optional<Bandwidth> bandwidth =
      model ? choose_bandwidth(options) : std::optional<Bandwidth>();
  if (options.json) {
    print_json(inspect_json(file, architecture, model.get(), bandwidth));
  } else {
    print(inspect_text(file, architecture, model.get(), bandwidth));
  }
  return ExitCode::ok;
}

}  // namespace

Runner set_up_inspect(Flags& flags) {
  const auto options = std::make_shared<InspectOptions>();
  options->engine.bind_model(flags);
  flags.number_or_none("--bandwidth", options->bandwidth, options->ceiling, 1e-3, 1e9);
  flags.text("--device", options->engine.device);
  flags.toggle("--json", options->json);
  flags.describe(
      "Shows a model file: metadata, tensors by type, what a pass must read, the ceiling.",
      "lockstep inspect -m model.gguf --bandwidth 60");
  return [options] { return inspect(*options); };
}

}  // namespace lockstep::app
