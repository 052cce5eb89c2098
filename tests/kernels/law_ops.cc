// The C++ reference, one op at a time: one JSON request a line on stdin, one JSON answer a line on
// stdout, arrays as base64. The protocol is tests/law/PROTOCOL.md; tests/law holds a second
// implementation of the law that compares itself with this program by bits.
#include <cstdio>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/cpu/float_mode.h"
#include "kernels/cpu/kernels.h"
#include "kernels/math/elementary.h"
#include "kernels/math/elementary64.h"
#include "kernels/math/half.h"
#include "kernels/rope_table.h"
#include "law_request.h"
#include "quant/dequantize.h"
#include "quantized.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;

TensorType weight_type(const Request& request) {
  static const std::map<std::string, TensorType> kTypes = {
      {"F32", TensorType::f32},    {"F16", TensorType::f16},       {"BF16", TensorType::bf16},
      {"Q4_0", TensorType::q4_0},  {"Q4_1", TensorType::q4_1},     {"Q5_0", TensorType::q5_0},
      {"Q5_1", TensorType::q5_1},  {"Q8_0", TensorType::q8_0},     {"Q2_K", TensorType::q2_k},
      {"Q3_K", TensorType::q3_k},  {"Q4_K", TensorType::q4_k},     {"Q5_K", TensorType::q5_k},
      {"Q6_K", TensorType::q6_k},  {"IQ4_NL", TensorType::iq4_nl}, {"IQ4_XS", TensorType::iq4_xs},
      {"MXFP4", TensorType::mxfp4}};
  const auto found = kTypes.find(request.text("type"));
  if (found == kTypes.end()) refuse("unknown weight type " + request.text("type"));
  return found->second;
}

KvType kv_type(const Request& request, const char* name) {
  for (const KvType type : kKvTypes) {
    if (request.text(name) == kv_type_name(type)) return type;
  }
  refuse("unknown KV type " + request.text(name));
}

int64_t row_bytes(TensorType type, int64_t n) {
  const gguf::TypeInfo& info = gguf::type_info(type);
  if (n % info.block_elements != 0) refuse("a row must be whole blocks");
  return n / info.block_elements * info.block_bytes;
}

RopeSpec rope_spec(const Request& request) {
  RopeSpec spec;
  spec.n_rot = static_cast<int32_t>(request.integer("n_rot", 1, kMaxWidth));
  spec.base = request.scalar("base", spec.base);
  const std::string scaling = request.has("scaling") ? request.text("scaling") : "none";
  if (scaling == "none")
    spec.scaling = RopeSpec::Scaling::none;
  else if (scaling == "linear")
    spec.scaling = RopeSpec::Scaling::linear;
  else if (scaling == "llama3")
    spec.scaling = RopeSpec::Scaling::llama3;
  else if (scaling == "yarn")
    spec.scaling = RopeSpec::Scaling::yarn;
  else
    refuse("unknown scaling " + scaling);
  spec.linear_factor = request.scalar("factor", spec.linear_factor);
  if (request.has("factors")) spec.factors = request.array<float>("factors");
  spec.low_freq_factor = request.scalar("low", spec.low_freq_factor);
  spec.high_freq_factor = request.scalar("high", spec.high_freq_factor);
  if (request.has("ctx")) spec.original_context = request.integer("ctx", 0, int64_t{1} << 40);
  spec.ext_factor = request.scalar("ext", spec.ext_factor);
  spec.attn_factor = request.scalar("attn", spec.attn_factor);
  spec.beta_fast = request.scalar("beta_fast", spec.beta_fast);
  spec.beta_slow = request.scalar("beta_slow", spec.beta_slow);
  return spec;
}

// Pages for positions [0, n), one layer.
struct Pages {
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> k, v;
  KvLayerView view;

  Pages(KvType k_type, KvType v_type, int64_t n_head_kv, int64_t head_dim, int64_t n) {
    for (int64_t p = 0; p * kPagePositions < n; ++p) {
      for (auto* list : {&k, &v}) {
        const KvType type = list == &k ? k_type : v_type;
        memory.emplace_back(
            static_cast<size_t>(n_head_kv * kPagePositions * kv_row_bytes(type, head_dim)));
        list->push_back(memory.back().data());
      }
    }
    view = {k_type,   v_type,   static_cast<int32_t>(n_head_kv), static_cast<int32_t>(head_dim),
            k.data(), v.data(), static_cast<int64_t>(k.size())};
  }
};

int64_t head_dim_for(const Request& request, KvType a, KvType b) {
  const int64_t head_dim = request.integer("head_dim", 1, 4096);
  if (head_dim % kv_block_elements(a) != 0 || head_dim % kv_block_elements(b) != 0) {
    refuse("q8_0 and q4_0 need a head_dim that is a multiple of 32");
  }
  return head_dim;
}

json elementary(const CpuKernels&, const Request& request) {
  using Function = float (*)(float);
  static const std::map<std::string, Function> kFunctions = {
      {"exp", [](float x) { return math::exp(x); }},
      {"sigmoid", [](float x) { return math::sigmoid(x); }},
      {"silu", [](float x) { return math::silu(x); }},
      {"gelu", [](float x) { return math::gelu(x); }},
      {"tanh", [](float x) { return math::tanh(x); }},
      {"softplus", [](float x) { return math::softplus(x); }}};
  const auto found = kFunctions.find(request.text("fn"));
  if (found == kFunctions.end()) refuse("unknown function " + request.text("fn"));
  std::vector<float> x = request.array<float>("x");
  for (float& value : x) value = found->second(value);
  return {{"y", encoded(x)}};
}

json elementary64(const CpuKernels&, const Request& request) {
  using Function = double (*)(double);
  static const std::map<std::string, Function> kFunctions = {
      {"log", [](double x) { return math::log(x); }},
      {"exp2", [](double x) { return math::exp2(x); }},
      {"sin", [](double x) { return math::sin(x); }},
      {"cos", [](double x) { return math::cos(x); }}};
  const auto found = kFunctions.find(request.text("fn"));
  if (found == kFunctions.end()) refuse("unknown function " + request.text("fn"));
  std::vector<double> x = request.array<double>("x");
  for (double& value : x) value = found->second(value);
  return {{"y", encoded(x)}};
}

json convert(const CpuKernels&, const Request& request) {
  const std::string fn = request.text("fn");
  if (fn == "f32_to_f16") {
    std::vector<uint16_t> y;
    for (const float x : request.array<float>("x")) y.push_back(math::f32_to_f16(x));
    return {{"y", encoded(y)}};
  }
  if (fn != "f16_to_f32" && fn != "bf16_to_f32") refuse("unknown function " + fn);
  std::vector<float> y;
  for (const uint16_t x : request.array<uint16_t>("x")) {
    y.push_back(fn == "f16_to_f32" ? math::f16_to_f32(x) : math::bf16_to_f32(x));
  }
  return {{"y", encoded(y)}};
}

json dequantize(const CpuKernels&, const Request& request) {
  const TensorType type = weight_type(request);
  const int64_t n = request.integer("n", 1, kMaxWidth), bytes = row_bytes(type, n);
  int64_t rows = 0;
  const auto w = request.rows<std::byte>("w", bytes, &rows);
  std::vector<float> y(static_cast<size_t>(rows * n));
  for (int64_t r = 0; r < rows; ++r)
    quant::dequantize_row(type, w.data() + r * bytes, y.data() + r * n, n);
  return {{"y", encoded(y)}};
}

json embed(const CpuKernels& kernels, const Request& request) {
  const TensorType type = weight_type(request);
  const int64_t n = request.integer("n", 1, kMaxWidth), bytes = row_bytes(type, n);
  int64_t vocab = 0;
  const auto w = request.rows<std::byte>("w", bytes, &vocab);
  const auto tokens = request.array<int32_t>("tokens");
  for (const int32_t token : tokens) {
    if (token < 0 || token >= vocab) refuse("a token outside the vocabulary");
  }
  const Weight table{"w", type, n, vocab, w.data(), bytes};
  std::vector<float> y(tokens.size() * static_cast<size_t>(n));
  const EmbedArgs args{&table, tokens.data(), request.scalar("scale"),
                       static_cast<int64_t>(tokens.size()), y.data()};
  kernels.embed(args, {0, args.items()});
  return {{"y", encoded(y)}};
}

json rms_norm(const CpuKernels& kernels, const Request& request) {
  const int64_t n = request.integer("n", 1, kMaxWidth), group = request.integer("group", 1, n);
  if (n % group != 0) refuse("n must be whole groups");
  int64_t rows = 0;
  const auto x = request.rows<float>("x", n, &rows);
  const auto weight = request.array<float>("weight", group);
  std::vector<float> y(x.size());
  std::vector<uint8_t> fault(static_cast<size_t>(rows));
  const RmsNormArgs args{x.data(), weight.data(),         y.data(),      rows, n,
                         group,    request.scalar("eps"), {fault.data()}};
  kernels.rms_norm(args, {0, args.items()});
  return {{"y", encoded(y)}, {"fault", encoded(fault)}};
}

using test::PackedWeight;
using test::Quantized;

Quantized quantize(const CpuKernels& kernels, ActivationForm form, const std::vector<float>& x,
                   int64_t rows, int64_t n) {
  Quantized out(kernels, form, rows, n);
  if (n % out.block != 0) refuse("a row must be whole blocks");
  const QuantizeActivationsArgs args{x.data(), rows, n, form, out.view(), {out.fault.data()}};
  kernels.quantize_activations(args, {0, args.items()});
  return out;
}

json quantize_activations(const CpuKernels& kernels, const Request& request) {
  const int64_t n = request.integer("n", 1, kMaxWidth), block = request.integer("form", 32, 256);
  if (block != 32 && block != 256) refuse("form must be 32 or 256");
  int64_t rows = 0;
  const auto x = request.rows<float>("x", n, &rows);
  const Quantized out =
      quantize(kernels, block == 32 ? ActivationForm::q32 : ActivationForm::q256, x, rows, n);
  std::vector<int8_t> q;  // row by row
  std::vector<float> d;
  std::vector<int32_t> sums;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < n; ++k) q.push_back(out.q_of(r, k));
    for (int64_t b = 0; b < n / out.block; ++b) d.push_back(out.d_of(r, b));
    for (int64_t b = 0; b < n / 32; ++b) sums.push_back(out.sum_of(r, b));
  }
  return {
      {"q", encoded(q)}, {"d", encoded(d)}, {"sums", encoded(sums)}, {"fault", encoded(out.fault)}};
}

json matmul(const CpuKernels& kernels, const Request& request) {
  const TensorType type = weight_type(request);
  const int64_t n_in = request.integer("n_in", 1, kMaxWidth),
                n_out = request.integer("n_out", 1, kMaxWidth);
  const int64_t bytes = row_bytes(type, n_in);
  const auto w = request.array<std::byte>("w", bytes * n_out);
  int64_t rows = 0;
  const auto x = request.rows<float>("x", n_in, &rows);
  std::vector<float> bias;
  if (request.has("bias")) bias = request.array<float>("bias", n_out);
  const Weight weight{"w", type, n_in, n_out, w.data(), bytes};
  const float* bias_data = bias.empty() ? nullptr : bias.data();
  std::vector<float> y(static_cast<size_t>(rows * n_out));
  std::vector<uint8_t> fault(static_cast<size_t>(rows));
  const ActivationForm form = activation_form(type);
  if (form == ActivationForm::f32) {
    const MatmulFloatArgs args{&weight, bias_data, x.data(), rows, y.data()};
    kernels.matmul_float(args, {0, args.items()});
  } else {
    Quantized q = quantize(kernels, form, x, rows, n_in);
    const PackedWeight packed(kernels, weight);
    const MatmulQuantizedArgs args{&weight, packed.data(), bias_data, q.view(), rows, y.data()};
    kernels.matmul_quantized(args, {0, args.items()});
    fault = q.fault;
  }
  return {{"y", encoded(y)}, {"fault", encoded(fault)}};
}

json rope_frequencies_of(const CpuKernels&, const Request& request) {
  const RopeFrequencies frequencies = rope_frequencies(rope_spec(request));
  return {{"f", encoded(frequencies.f)},
          {"mscale", encoded(std::vector<float>{frequencies.mscale})},
          {"scaled", frequencies.scaled}};
}

json rope_row_of(const CpuKernels&, const Request& request) {
  const RopeFrequencies frequencies = rope_frequencies(rope_spec(request));
  std::vector<float> cos(frequencies.f.size()), sin(frequencies.f.size());
  rope_row(frequencies, request.integer("position", 0, int64_t{1} << 40), cos.data(), sin.data());
  return {{"cos", encoded(cos)}, {"sin", encoded(sin)}};
}

json rope(const CpuKernels& kernels, const Request& request) {
  const RopeSpec spec = rope_spec(request);
  const RopeFrequencies frequencies = rope_frequencies(spec);
  const int64_t n_head = request.integer("n_head", 1, kMaxWidth);
  const int64_t head_dim = request.integer("head_dim", spec.n_rot, kMaxWidth);
  const int64_t first_position = request.integer("first_position", 0, int64_t{1} << 40);
  const std::string pairing = request.text("pairing");
  if (pairing != "adjacent" && pairing != "halves") refuse("unknown pairing " + pairing);
  int64_t rows = 0;
  auto x = request.rows<float>("x", n_head * head_dim, &rows);
  const int64_t pairs = spec.n_rot / 2;
  std::vector<float> cos(static_cast<size_t>(rows * pairs)), sin(cos.size());
  for (int64_t r = 0; r < rows; ++r) {
    rope_row(frequencies, first_position + r, cos.data() + r * pairs, sin.data() + r * pairs);
  }
  const RopeArgs args{x.data(), cos.data(), sin.data(), rows,
                      n_head,   head_dim,   spec.n_rot, pairing == "halves"};
  kernels.rope(args, {0, args.items()});
  return {{"y", encoded(x)}};
}

// A row read back: attention over one position returns its value, since p = exp(0) = 1, l = 1 and
// o = fma(1, v, +0) = v, o ÷ 1 = v (and -0 becomes +0, which the protocol's users must know).
json kv_write(const CpuKernels& kernels, const Request& request) {
  const KvType type = kv_type(request, "kv_type");
  const int64_t head_dim = head_dim_for(request, type, type);
  int64_t rows = 0;
  const auto x = request.rows<float>("x", head_dim, &rows);
  Pages pages(type, type, 1, head_dim, std::max<int64_t>(1, rows));
  std::vector<uint8_t> fault(static_cast<size_t>(rows));
  const KvWriteArgs args{x.data(), x.data(), rows, 0, &pages.view, {fault.data()}};
  kernels.kv_write(args, {0, args.items()});
  const int64_t bytes = kv_row_bytes(type, head_dim);
  std::vector<std::byte> stored;
  for (int64_t r = 0; r < rows; ++r) {
    const std::byte* at =
        pages.k[static_cast<size_t>(r / kPagePositions)] + r % kPagePositions * bytes;
    stored.insert(stored.end(), at, at + bytes);
  }
  std::vector<float> y(x.size());
  const std::vector<float> zero(static_cast<size_t>(head_dim), 0.0f);
  std::vector<std::byte> scratch(static_cast<size_t>(attention_scratch_bytes(head_dim, 1, 1)) + 64);
  auto* aligned =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  std::vector<uint8_t> ignored(1);
  for (int64_t r = 0; r < rows; ++r) {
    const AttentionArgs read{zero.data(), y.data() + r * head_dim, 1, r, 1, head_dim, 1.0f, 0.0f, 1,
                             &pages.view, {ignored.data()}};
    kernels.attention(read, {0, read.items()}, aligned);
  }
  return {{"row", encoded(stored)}, {"y", encoded(y)}, {"fault", encoded(fault)}};
}

json attention(const CpuKernels& kernels, const Request& request) {
  const KvType k_type = kv_type(request, "k_type"), v_type = kv_type(request, "v_type");
  const int64_t head_dim = head_dim_for(request, k_type, v_type);
  const int64_t n_head = request.integer("n_head", 1, 1024),
                n_head_kv = request.integer("n_head_kv", 1, n_head);
  if (n_head % n_head_kv != 0) refuse("n_head must be a multiple of n_head_kv");
  const int64_t first_position = request.integer("first_position", 0, 1 << 20);
  int64_t rows = 0;
  const auto q = request.rows<float>("q", n_head * head_dim, &rows);
  const int64_t n = first_position + rows;
  const auto k = request.array<float>("k", n * n_head_kv * head_dim);
  const auto v = request.array<float>("v", n * n_head_kv * head_dim);
  Pages pages(k_type, v_type, n_head_kv, head_dim, std::max<int64_t>(1, n));
  std::vector<uint8_t> write_fault(static_cast<size_t>(n));
  const KvWriteArgs write{k.data(), v.data(), n, 0, &pages.view, {write_fault.data()}};
  kernels.kv_write(write, {0, write.items()});
  for (const uint8_t fault : write_fault) {
    if (fault) refuse("a key or value faults on write");
  }
  std::vector<float> y(q.size());
  std::vector<uint8_t> fault(static_cast<size_t>(rows));
  std::vector<std::byte> scratch(
      static_cast<size_t>(attention_scratch_bytes(head_dim, n_head, n_head_kv)) + 64);
  auto* aligned =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  const AttentionArgs args{q.data(),
                           y.data(),
                           rows,
                           first_position,
                           n_head,
                           head_dim,
                           request.scalar("scale"),
                           request.scalar("softcap"),
                           request.integer("window", 0, int64_t{1} << 40),
                           &pages.view,
                           {fault.data()}};
  kernels.attention(args, {0, args.items()}, aligned);
  return {{"y", encoded(y)}, {"fault", encoded(fault)}};
}

json add(const CpuKernels& kernels, const Request& request) {
  const auto a = request.array<float>("a");
  const auto b = request.array<float>("b", static_cast<int64_t>(a.size()));
  std::vector<float> y(a.size());
  const AddArgs args{a.data(), b.data(), y.data(), 1, static_cast<int64_t>(a.size())};
  kernels.add(args, {0, args.items()});
  return {{"y", encoded(y)}};
}

json gated_act(const CpuKernels& kernels, const Request& request) {
  const int64_t n = request.integer("n", 1, kMaxWidth);
  const std::string act = request.text("act");
  if (act != "silu" && act != "gelu") refuse("unknown activation " + act);
  int64_t rows = 0;
  const auto gate = request.rows<float>("gate", n, &rows);
  const auto up = request.array<float>("up", rows * n);
  std::vector<float> y(gate.size());
  std::vector<uint8_t> fault(static_cast<size_t>(rows));
  const GatedActArgs args{gate.data(), up.data(), y.data(), rows, n, act == "gelu", {fault.data()}};
  kernels.gated_act(args, {0, args.items()});
  return {{"y", encoded(y)}, {"fault", encoded(fault)}};
}

json softcap(const CpuKernels& kernels, const Request& request) {
  const int64_t n = request.integer("n", 1, kMaxWidth);
  int64_t rows = 0;
  auto x = request.rows<float>("x", n, &rows);
  std::vector<uint8_t> fault(static_cast<size_t>(rows));
  const SoftcapArgs args{x.data(), rows, n, request.scalar("cap"), {fault.data()}};
  kernels.softcap(args, {0, args.items()});
  return {{"y", encoded(x)}, {"fault", encoded(fault)}};
}

json check_logits(const CpuKernels& kernels, const Request& request) {
  const int64_t n = request.integer("n", 1, kMaxWidth);
  int64_t rows = 0;
  const auto x = request.rows<float>("x", n, &rows);
  std::vector<uint8_t> fault(static_cast<size_t>(rows));
  const CheckLogitsArgs args{x.data(), rows, n, {fault.data()}};
  kernels.check_logits(args, {0, args.items()});
  return {{"fault", encoded(fault)}};
}

json answer(const CpuKernels& kernels, const std::string& line) {
  using Handler = json (*)(const CpuKernels&, const Request&);
  static const std::map<std::string, Handler> kOps = {
      {"elementary", elementary},
      {"elementary64", elementary64},
      {"convert", convert},
      {"dequantize", dequantize},
      {"embed", embed},
      {"rms_norm", rms_norm},
      {"quantize_activations", quantize_activations},
      {"matmul", matmul},
      {"rope_frequencies", rope_frequencies_of},
      {"rope_row", rope_row_of},
      {"rope", rope},
      {"kv_write", kv_write},
      {"attention", attention},
      {"add", add},
      {"gated_act", gated_act},
      {"softcap", softcap},
      {"check_logits", check_logits}};
  json out = json::object(), request;
  try {
    request = json::parse(line);
    const Request fields(request);
    const auto found = kOps.find(fields.text("op"));
    if (found == kOps.end()) refuse("unknown op " + fields.text("op"));
    out = found->second(kernels, fields);
    out["ok"] = true;
  } catch (const std::exception& error) {
    out = {{"ok", false}, {"error", error.what()}};
  }
  if (request.is_object() && request.contains("id")) out["id"] = request["id"];
  return out;
}

int serve(int argc, char** argv) {
  std::string isa;
  if (argc == 3 && std::string(argv[1]) == "--isa") {
    isa = argv[2];
  } else if (argc != 1) {
    std::fprintf(stderr, "use: law_ops [--isa scalar|scalar-v3]\n");
    return 2;
  }
  try {
    const CpuKernels& kernels = select_cpu_kernels(isa);
    const CanonicalFloatMode mode;
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << answer(kernels, line).dump(-1, ' ', false, json::error_handler_t::replace)
                << std::endl;
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "law_ops: %s\n", error.what());
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::kernels

int main(int argc, char** argv) {
  return lockstep::kernels::serve(argc, argv);
}
