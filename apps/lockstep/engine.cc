#include "engine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <thread>

#include "synth/synth.h"

namespace lockstep::app {
namespace {

constexpr std::string_view kSynthPrefix = "synth:";

std::string read_stream(std::FILE* file, const std::string& name, int64_t max_bytes) {
  const auto refuse_length = [&] {
    throw Error(ExitCode::bad_file,
                fmt::format("{}: more than {}; give less", name, human_bytes(max_bytes)));
  };
  struct stat status {};
  if (::fstat(::fileno(file), &status) == 0 && S_ISREG(status.st_mode) &&
      status.st_size > max_bytes) {
    refuse_length();
  }
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const size_t n = std::fread(buffer, 1, sizeof buffer, file);
    text.append(buffer, n);
    if (static_cast<int64_t>(text.size()) > max_bytes) refuse_length();
    if (n < sizeof buffer) break;
  }
  if (std::ferror(file)) {
    throw Error(ExitCode::bad_file,
                fmt::format("{}: cannot be read: {}", name, std::strerror(errno)));
  }
  return text;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The number of a CUDA device: 0 of "cuda", N of "cuda:N" and of llama.cpp's "CUDAN"; none of "cpu"
// and "none".
std::optional<int> cuda_index(const Given& device) {
  std::string_view name = device.value;
  if (name == "cpu" || name == "none") return std::nullopt;
  if (name == "cuda") return 0;
  if (name.find(',') != std::string_view::npos) {
    bad_use(fmt::format("{}: several devices; a model runs on one, give cuda:N", device.shown));
  }
  for (const std::string_view prefix : {"cuda:", "CUDA"}) {
    if (!name.starts_with(prefix)) continue;
    const std::string_view number = name.substr(prefix.size());
    int index = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
    if (error == std::errc() && end == number.data() + number.size() && index >= 0) return index;
  }
  bad_use(fmt::format("{}: not a device; give cpu, cuda or cuda:N", device.shown));
}

}  // namespace

void EngineOptions::bind_backend(Flags& flags) {
  flags.integer("--threads", threads, -1, 1024);
  flags.text("--isa", isa);
  flags.text("--device", device);
  flags.text("--kernels", kernels);
}

void EngineOptions::bind_kv_types(Flags& flags) {
  flags.text("--cache-type-k", k_type);
  flags.text("--cache-type-v", v_type);
}

void EngineOptions::bind_context(Flags& flags) {
  flags.integer("--ctx-size", context, 0, 1LL << 40);
  flags.integer("--ubatch-size", chunk, 1, kMaxChunk);
}

gguf::File open_source(const Given& source) {
  if (source.value.empty()) {
    bad_use(fmt::format("{}: the name is empty; name a GGUF file", source.name));
  }
  return naming_environment(source, [](const std::string& value) {
    return value.starts_with(kSynthPrefix) ? synth::make_in_memory(synth::parse_synth(value))
                                           : gguf::File::open(value);
  });
}

gguf::File open_model_source(const EngineOptions& options) {
  if (!options.model) bad_use("no model; name a GGUF file with -m FILE");
  return open_source(*options.model);
}

std::shared_ptr<const model::Model> open_model(const EngineOptions& options) {
  return model::Model::load(open_model_source(options));
}

std::shared_ptr<const model::Model> open_drafter(const Given& source,
                                                 const text::Tokenizer& target) {
  auto drafter = model::Model::load(open_source(source));
  const auto difference = text::first_difference(target, text::Tokenizer::load(drafter->file()));
  if (difference) {
    bad_use(
        fmt::format("{}: its vocabulary is not the model's: {}; use a drafter of the same family",
                    source.shown, *difference));
  }
  return drafter;
}

int default_threads() {
  // The cores this process may use, which a container or taskset can make fewer than there are.
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void check_device_name(const EngineOptions& options) {
  if (options.device) cuda_index(*options.device);
}

std::shared_ptr<kernels::Backend> open_backend(const EngineOptions& options) {
  const std::optional<int> cuda = options.device ? cuda_index(*options.device) : std::nullopt;
  if (options.kernels && *options.kernels != "own" && *options.kernels != "portable") {
    bad_use(fmt::format("--kernels {}: give own or portable", shorten(*options.kernels)));
  }
  if (options.kernels && !cuda) {
    bad_use("--kernels chooses the code of a CUDA device; give it with --device cuda");
  }
  if (!cuda) return open_cpu_backend(options);
  if (options.isa) {
    bad_use(fmt::format("--isa {}: it chooses the CPU's kernels; leave it out with {}",
                        shorten(*options.isa), options.device->shown));
  }
  return kernels::make_cuda_backend(*cuda, options.kernels.value_or("own") == "portable"
                                               ? kernels::CudaCode::portable
                                               : kernels::CudaCode::own);
}

std::shared_ptr<kernels::Backend> open_cpu_backend(const EngineOptions& options) {
  const int64_t threads = options.threads.value_or(-1);
  if (threads > default_threads()) {
    note(fmt::format("-t {}: this process has {} cores; more threads wait for each other", threads,
                     default_threads()));
  }
  return kernels::make_cpu_backend(options.isa.value_or(""),
                                   threads <= 0 ? default_threads() : static_cast<int>(threads));
}

kernels::LoadReport load_weights(kernels::Backend& backend, const model::Model& model) {
  const kernels::LoadReport report = backend.prepare(model.graph());
  model.file().refuse_if_changed();
  return report;
}

Json load_json(const kernels::LoadReport& report) {
  return {{"ms", report.milliseconds},
          {"packed_bytes", report.packed_bytes},
          {"huge_page_bytes", report.huge_bytes}};
}

kernels::KvType parse_kv_type(const std::optional<Given>& name) {
  if (!name) return kernels::KvType::f16;
  for (const auto type : kernels::kKvTypes) {
    if (name->value == kernels::kv_type_name(type)) return type;
  }
  bad_use(fmt::format("{}: not a KV type of this build; give f32, f16, q8_0 or q4_0", name->shown));
}

int64_t choose_context(const EngineOptions& options, const model::Model& model,
                       kernels::KvType k_type, kernels::KvType v_type) {
  const int64_t trained = model.hyperparameters().n_ctx_train;
  if (options.context && *options.context > 0) {
    if (*options.context > trained) {
      note(fmt::format(
          "-c {}: the model was trained on {} positions; beyond them it may write nonsense",
          *options.context, trained));
    }
    return *options.context;
  }
  if (options.context) return trained;
  const int64_t per_position = state::bytes_per_position(model.kv_spec(k_type, v_type, trained));
  const int64_t fits = kDefaultKvBytes / std::max<int64_t>(1, per_position) / 64 * 64;
  return std::clamp<int64_t>(fits, std::min<int64_t>(trained, 512), trained);
}

std::string read_text_file(std::string_view path, int64_t max_bytes) {
  const std::string name(path);
  std::FILE* file = std::fopen(name.c_str(), "rb");
  if (!file) {
    throw Error(ExitCode::bad_file, fmt::format("{}: cannot open: {}", name, std::strerror(errno)));
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> closer(file, std::fclose);
  return read_stream(file, name, max_bytes);
}

std::string read_stdin(int64_t max_bytes) {
  return read_stream(stdin, "standard input", max_bytes);
}

std::string process_escapes(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    switch (next) {
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case '\'':
        out += '\'';
        break;
      case '"':
        out += '"';
        break;
      case '\\':
        out += '\\';
        break;
      case 'x':
        if (i + 3 < text.size() && hex_digit(text[i + 2]) >= 0 && hex_digit(text[i + 3]) >= 0) {
          out += static_cast<char>(hex_digit(text[i + 2]) * 16 + hex_digit(text[i + 3]));
          i += 2;
          break;
        }
        [[fallthrough]];
      default:
        out += '\\';
        continue;
    }
    ++i;
  }
  return out;
}

std::string human_bytes(double bytes) {
  static constexpr std::string_view kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

}  // namespace lockstep::app
