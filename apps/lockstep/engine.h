// What commands share: opening a model, a backend, and the flags that say how.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "cli.h"
#include "gguf/file.h"
#include "kernels/backend.h"
#include "model/model.h"
#include "output.h"
#include "state/kv_cache.h"
#include "text/tokenizer.h"

namespace lockstep::app {

inline constexpr int64_t kMaxChunk = 512;                // rows of a prompt pass (-ub)
inline constexpr int64_t kMaxTemplateBytes = 4'000'000;  // the longest in use has some 30 kB
inline constexpr int64_t kDefaultKvBytes = 1LL << 30;    // what the default context may take

struct EngineOptions {
  std::optional<Given> model, k_type, v_type, device;
  std::optional<std::string> isa, kernels;
  std::optional<int64_t> threads, context, chunk;

  void bind_model(Flags& flags) { flags.text("--model", model); }
  void bind_backend(Flags& flags);   // -t, --isa, --device, --kernels
  void bind_kv_types(Flags& flags);  // -ctk, -ctv
  void bind_context(Flags& flags);   // -c, -ub
};

// The file of -m or -md, or the model that a synth: source describes. Errors name the source, and
// the variable it came from.
gguf::File open_source(const Given& source);
// That of -m, which must be there.
gguf::File open_model_source(const EngineOptions& options);
std::shared_ptr<const model::Model> open_model(const EngineOptions& options);

// The draft model of -md. Throws Error(bad_use), naming the first difference, when its vocabulary
// is not the target's.
std::shared_ptr<const model::Model> open_drafter(const Given& source,
                                                 const text::Tokenizer& target);

int default_threads();
// Throws Error(bad_use) when --device names none.
void check_device_name(const EngineOptions& options);
// That of --device, on the CPU with -t and --isa. Throws as make_cpu_backend and make_cuda_backend
// do.
std::shared_ptr<kernels::Backend> open_backend(const EngineOptions& options);
std::shared_ptr<kernels::Backend> open_cpu_backend(const EngineOptions& options);
// Makes the weights ready for the backend's kernels. Throws Error(resource), and Error(bad_file)
// when the file was written to meanwhile.
kernels::LoadReport load_weights(kernels::Backend& backend, const model::Model& model);
// What getting the weights ready for the kernels took, as docs/json.md lists it.
Json load_json(const kernels::LoadReport& report);

kernels::KvType parse_kv_type(const std::optional<Given>& name);

// -c as given; without it the training context, but no more than fits kDefaultKvBytes.
int64_t choose_context(const EngineOptions& options, const model::Model& model,
                       kernels::KvType k_type, kernels::KvType v_type);

inline constexpr int64_t kMaxTextBytes = 256LL << 20;

// A whole file as text. Throws Error(bad_file); max_bytes bounds what is read, and a regular file
// that has more is not read at all.
std::string read_text_file(std::string_view path, int64_t max_bytes = kMaxTextBytes);
std::string read_stdin(int64_t max_bytes = kMaxTextBytes);

// llama.cpp's -e: \n \r \t \' \" \\ \xHH; any other backslash stays.
std::string process_escapes(std::string_view text);

std::string human_bytes(double bytes);  // "97.2 MB" (decimal, as bandwidths are)

}  // namespace lockstep::app
