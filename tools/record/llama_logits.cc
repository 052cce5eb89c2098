// Logits of llama.cpp for given token ids, every row, as raw little-endian binary32: the outside
// reference of tests/oracle. Built against a llama.cpp tree and its static libraries, never part of
// the product's build; tests/oracle/README.md has the command.
//
//   llama_logits MODEL IDS.json OUT.f32 [--width N] [--kv f16|f32] [--no-fa] [--threads N]
//
// IDS.json is a list of lists of ids, used as given. Each sequence starts from an empty cache.
// --width 0 (the default) hands over a sequence as one batch, which llama.cpp cuts into its default
// ubatches of 512; --width 1 is decoding token by token. All else is llama.cpp's default: f16 KV,
// flash attention "auto" (which turns it on for these models), repacked weights. With flash
// attention llama.cpp rounds K and V to f16 even when they are kept in f32, so --kv f32 wants
// --no-fa. stdout has one JSON line that says what was used.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "llama.h"

namespace {

using Sequence = std::vector<llama_token>;

struct Options {
  std::string model, ids, out;
  size_t width = 0;
  ggml_type kv = GGML_TYPE_F16;
  llama_flash_attn_type flash_attn = LLAMA_FLASH_ATTN_TYPE_AUTO;
  int threads = 1;
};

Options parse(int argc, char** argv) {
  Options o;
  std::vector<std::string> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    auto value = [&] {
      if (++i >= argc) throw std::runtime_error(arg + " needs a value");
      return std::string(argv[i]);
    };
    if (arg == "--width")
      o.width = std::stoul(value());
    else if (arg == "--threads")
      o.threads = std::stoi(value());
    else if (arg == "--no-fa")
      o.flash_attn = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    else if (arg == "--kv") {
      const std::string type = value();
      if (type != "f16" && type != "f32") throw std::runtime_error("--kv takes f16 or f32");
      o.kv = type == "f16" ? GGML_TYPE_F16 : GGML_TYPE_F32;
    } else if (arg.starts_with("--"))
      throw std::runtime_error("unknown option " + arg);
    else
      paths.push_back(arg);
  }
  if (paths.size() != 3)
    throw std::runtime_error("usage: llama_logits MODEL IDS.json OUT.f32 [options]");
  o.model = paths[0], o.ids = paths[1], o.out = paths[2];
  return o;
}

// Writes one row per token of the sequence.
void decode(llama_context* ctx, const Sequence& sequence, size_t width, size_t n_vocab,
            std::ofstream& out) {
  llama_memory_clear(llama_get_memory(ctx), true);
  if (width == 0) width = sequence.size();
  for (size_t begin = 0; begin < sequence.size(); begin += width) {
    const size_t n = std::min(width, sequence.size() - begin);
    llama_batch batch = llama_batch_init(static_cast<int32_t>(n), 0, 1);
    batch.n_tokens = static_cast<int32_t>(n);
    for (size_t i = 0; i < n; ++i) {
      batch.token[i] = sequence[begin + i];
      batch.pos[i] = static_cast<llama_pos>(begin + i);
      batch.n_seq_id[i] = 1;
      batch.seq_id[i][0] = 0;
      batch.logits[i] = 1;
    }
    if (llama_decode(ctx, batch) != 0) throw std::runtime_error("llama_decode failed");
    for (size_t i = 0; i < n; ++i) {
      const float* row = llama_get_logits_ith(ctx, static_cast<int32_t>(i));
      out.write(reinterpret_cast<const char*>(row),
                static_cast<std::streamsize>(n_vocab * sizeof(float)));
    }
    llama_batch_free(batch);
  }
}

void record(const Options& o) {
  std::ifstream ids_file(o.ids);
  if (!ids_file) throw std::runtime_error("cannot read " + o.ids);
  const auto sequences = nlohmann::json::parse(ids_file).get<std::vector<Sequence>>();
  size_t longest = 0, rows = 0;
  for (const Sequence& s : sequences) longest = std::max(longest, s.size()), rows += s.size();

  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
      },
      nullptr);
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(o.model.c_str(), llama_model_default_params());
  if (!model) throw std::runtime_error("cannot load " + o.model);

  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>((longest + 255) / 256 * 256);
  params.n_batch = params.n_ctx;
  params.n_threads = params.n_threads_batch = o.threads;
  params.type_k = params.type_v = o.kv;
  params.flash_attn_type = o.flash_attn;
  llama_context* ctx = llama_init_from_model(model, params);
  if (!ctx) throw std::runtime_error("cannot make a context");

  const auto n_vocab = static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
  std::ofstream out(o.out, std::ios::binary);
  for (const Sequence& s : sequences) decode(ctx, s, o.width, n_vocab, out);
  out.close();
  if (!out) throw std::runtime_error("cannot write " + o.out);

  const nlohmann::json used = {
      {"rows", rows},
      {"n_vocab", n_vocab},
      {"width", o.width},
      {"threads", o.threads},
      {"n_ubatch", llama_n_ubatch(ctx)},
      {"kv", ggml_type_name(o.kv)},
      {"flash_attn", llama_flash_attn_type_name(o.flash_attn)},
      {"system", llama_print_system_info()},
  };
  std::printf("%s\n", used.dump().c_str());
  llama_free(ctx);
  llama_model_free(model);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    record(parse(argc, argv));
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "llama_logits: %s\n", e.what());
    return 2;
  }
}
