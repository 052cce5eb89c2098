// A tiny model whose metadata and tensors are changed at random: a clear refusal, or a model that
// computes. Input bytes are a list of changes. At exit the program says how many models were taken
// and run; a run with fewer than 1,000 refused or 100 computed has tried nothing and exits with 1.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/backend.h"
#include "model/model.h"
#include "model_edit.h"
#include "state/kv_cache.h"
#include "synth/synth.h"
#include "text/tokenizer.h"

namespace {

using namespace lockstep;
using gguf::Value;
using gguf::ValueType;

struct Counts {
  uint64_t inputs = 0, refused = 0, computed = 0, faults = 0;
} counts;

void report() {
  std::fprintf(stderr,
               "fuzz_model: %llu inputs, %llu refused, %llu computed (%llu of them with a fault)\n",
               static_cast<unsigned long long>(counts.inputs),
               static_cast<unsigned long long>(counts.refused),
               static_cast<unsigned long long>(counts.computed),
               static_cast<unsigned long long>(counts.faults));
  if (counts.inputs >= 1000 && (counts.refused < 1000 || counts.computed < 100)) {
    std::fprintf(stderr, "fuzz_model: fewer than 1,000 refused or 100 computed is no run\n");
    std::_Exit(1);
  }
}

const gguf::File& base(bool gemma) {
  static const gguf::File llama = synth::make_in_memory(synth::parse_synth(
      "llama-tiny,embd=32,heads=2,kv_heads=1,head_dim=16,ffn=32,vocab=270,layers=2,ctx=64@q8_0"));
  static const gguf::File gemma3 = synth::make_in_memory(synth::parse_synth(
      "gemma3-tiny,embd=32,heads=2,kv_heads=1,head_dim=16,ffn=32,vocab=270,layers=2,ctx=64@q8_0"));
  return gemma ? gemma3 : llama;
}

class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  uint8_t next() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  uint64_t number() {
    constexpr uint64_t kTroublesome[] = {0,
                                         1,
                                         2,
                                         3,
                                         4,
                                         5,
                                         7,
                                         8,
                                         15,
                                         16,
                                         17,
                                         31,
                                         32,
                                         33,
                                         64,
                                         255,
                                         270,
                                         271,
                                         1024,
                                         65535,
                                         0x7FFFFFFF,
                                         0x80000000,
                                         0xFFFFFFFF,
                                         0x100000000,
                                         0x7FFFFFFFFFFFFFFF,
                                         0xFFFFFFFFFFFFFFFF};
    const uint8_t choice = next();
    if (choice < 2 * std::size(kTroublesome)) return kTroublesome[choice / 2];
    return uint64_t{next()} << 8 | next();
  }
  double real() {
    constexpr double kTroublesome[] = {0.0, -0.0,   1.0,   -1.0,    1e-6, 1e-45,    1e-300,    0.5,
                                       2.0, 3.4e38, 1e300, 10000.0, 1e6,  INFINITY, -INFINITY, NAN};
    return kTroublesome[next() % std::size(kTroublesome)];
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

// Keys that files have beside those of the base.
constexpr const char* kMoreKeys[] = {"rope.scaling.type",
                                     "rope.scaling.factor",
                                     "rope.scaling.original_context_length",
                                     "rope.scaling.low_freq_factor",
                                     "rope.scaling.high_freq_factor",
                                     "rope.scaling.attn_factor",
                                     "rope.scaling.yarn_ext_factor",
                                     "rope.scaling.yarn_beta_fast",
                                     "rope.scaling.yarn_beta_slow",
                                     "rope.freq_base_swa",
                                     "attention.sliding_window",
                                     "attention.sliding_window_pattern",
                                     "final_logit_softcapping",
                                     "attention.causal",
                                     "expert_count",
                                     "attention.key_length_swa",
                                     "attention.scale"};

Value make_value(Bytes& in) {
  constexpr const char* kTexts[] = {"none",   "linear",  "llama3", "yarn", "gpt2",   "llama",
                                    "gemma3", "default", "gpt-2",  "",     "\x1B[2J"};
  switch (in.next() % 10) {
    case 0:
      return {ValueType::u32, in.number() & 0xFFFFFFFF};
    case 1:
      return {ValueType::i32, static_cast<int64_t>(static_cast<int32_t>(in.number()))};
    case 2:
      return {ValueType::u64, in.number()};
    case 3:
      return {ValueType::f32, static_cast<double>(static_cast<float>(in.real()))};
    case 4:
      return {ValueType::f64, in.real()};
    case 5:
      return {ValueType::boolean, in.next() % 2 == 1};
    case 6:
    case 7:
      return {ValueType::string, std::string(kTexts[in.next() % std::size(kTexts)])};
    default: {
      auto array = std::make_shared<gguf::Array>();
      array->element_type = ValueType::u32;
      std::vector<uint64_t> elements(in.next() % 4);
      for (uint64_t& element : elements) element = in.number() & 0xFFFFFFFF;
      array->elements = std::move(elements);
      return {ValueType::array, std::shared_ptr<const gguf::Array>(std::move(array))};
    }
  }
}

test::TensorChange make_change(Bytes& in, const gguf::File& file, const gguf::Tensor& tensor) {
  test::TensorChange change;
  switch (in.next() % 6) {
    case 0:
      change.removed = true;
      break;
    case 1:
      change.name = file.tensors()[in.next() % file.tensors().size()].name;
      break;
    case 2: {
      const gguf::TypeInfo* info = gguf::type_info(uint32_t{in.next()} % 43);
      change.type = info ? info->type : gguf::TensorType::f16;
      break;
    }
    case 3: {
      // At most the base's own 270 by three times 96: this harness builds the file in memory.
      change.ne.assign(tensor.ne, tensor.ne + 1 + in.next() % 3);
      for (int64_t& extent : change.ne) {
        extent = in.next() % 2 ? extent : std::max<int64_t>(1, in.next() % 13 * 8);
      }
      break;
    }
    default: {
      const uint64_t at = in.number();
      const uint8_t value = in.next();
      change.edit = [at, value](std::span<std::byte> out) {
        out[at % out.size()] = static_cast<std::byte>(value);
      };
    }
  }
  return change;
}

std::vector<std::byte> build(Bytes& in) {
  const gguf::File& file = base(in.next() % 2);
  test::ModelEdit model(file);
  const std::string architecture = file.string("general.architecture").value();
  for (int edits = 1 + in.next() % 3; edits > 0; --edits) {
    const uint8_t what = in.next();
    const auto& metadata = file.metadata();
    if (what % 8 == 0) {
      model.drop(metadata[in.next() % metadata.size()].first);
    } else if (what % 8 < 3) {
      const std::string key = metadata[in.next() % metadata.size()].first;
      model.set(key, make_value(in));
    } else if (what % 8 < 6) {
      const std::string key = architecture + "." + kMoreKeys[in.next() % std::size(kMoreKeys)];
      model.set(key, make_value(in));
    } else {
      const gguf::Tensor& tensor = file.tensors()[in.next() % file.tensors().size()];
      model.change(tensor.name, make_change(in, file, tensor));
    }
  }
  return model.bytes();
}

void compute(const std::shared_ptr<const model::Model>& model, const text::Tokenizer& tokenizer) {
  static const auto backend = kernels::make_cpu_backend("", 1);
  std::vector<int32_t> tokens = tokenizer.encode("any text", true, false);
  tokens.resize(std::min<size_t>(tokens.size(), 6));
  if (tokens.empty()) return;
  state::KvCache cache(model->kv_spec(kernels::KvType::f16, kernels::KvType::f16, 8), nullptr);
  std::vector<float> logits(tokens.size() * static_cast<size_t>(model->hyperparameters().n_vocab));
  kernels::Pass pass;
  pass.segments.push_back({tokens, 0, cache.append(static_cast<int64_t>(tokens.size())), 0});
  pass.logits = logits;
  backend->run(model->graph(), pass);
  if (!pass.faults.empty()) ++counts.faults;
  tokenizer.decode(tokens, true);
  ++counts.computed;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::atexit(report);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes in(data, size);
  std::vector<std::byte> bytes;
  try {
    bytes = build(in);
  } catch (const std::invalid_argument&) {
    return -1;  // a tensor that cannot be written: not worth keeping
  }
  ++counts.inputs;
  try {
    const auto file = gguf::File::from_memory(
        std::make_shared<const std::vector<std::byte>>(std::move(bytes)), "fuzz.gguf");
    const auto model = model::Model::load(file);
    compute(model, text::Tokenizer::load(file));
  } catch (const Error& error) {
    const std::string message = error.what();
    if (error.code() != ExitCode::bad_file || message.rfind("fuzz.gguf: ", 0) != 0 ||
        message.find('\n') != std::string::npos) {
      std::fprintf(stderr, "fuzz_model: not a clean refusal: %s\n", message.c_str());
      std::abort();
    }
    ++counts.refused;
  }
  return 0;
}
