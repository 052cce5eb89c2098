#include "decode/result.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/sha256.h"
#include "kernels/types.h"

namespace lockstep::decode {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "ids are hashed as little-endian int32");

double rate(int64_t tokens, double ms) {
  return tokens > 0 && ms > 0.0 ? 1000.0 * static_cast<double>(tokens) / ms : 0.0;
}

int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// accepted / proposed, by place; null where nothing was proposed.
Json shares(const std::vector<int64_t>& accepted, const std::vector<int64_t>& proposed) {
  Json list = Json::array();
  for (size_t i = 0; i < proposed.size(); ++i) {
    if (proposed[i] == 0) {
      list.push_back(nullptr);
    } else {
      list.push_back(static_cast<double>(accepted[i]) / static_cast<double>(proposed[i]));
    }
  }
  return list;
}

// The shortest decimal that reads back as the same binary32: 0.8, not 0.800000011920929.
Json decimal(float value) {
  if (!std::isfinite(value)) return nullptr;
  char text[64];
  const auto written = std::to_chars(text, text + sizeof text, value);
  double shortest = 0.0;
  std::from_chars(text, written.ptr, shortest);
  return shortest;
}

}  // namespace

double Result::decode_tok_s() const {
  return rate(generated_tokens - timing.first_tokens, timing.decode_ms);
}

double Result::wall_tok_s() const {
  return rate(generated_tokens, timing.wall_ms);
}

double Result::mean_accepted_len() const {
  if (draft.steps == 0) return 0.0;
  return static_cast<double>(generated_tokens) / static_cast<double>(draft.steps);
}

std::string token_sha256(std::span<const int32_t> ids) {
  return to_hex(sha256(std::as_bytes(ids)));
}

Result make_result(const Session& session, const Program& engine) {
  const SessionOptions& options = session.options();
  const kernels::BackendInfo backend = session.backend().info();
  const model::Model& model = session.model();
  Result result;
  result.prompt_tokens = session.prompt_tokens();
  result.cached_tokens = session.cached_tokens();
  result.generated_tokens = session.generated_tokens();
  result.token_sha256 = token_sha256(session.generated());
  result.timing = session.timing();
  result.draft = session.draft_counts();
  result.phases = session.phases();
  result.finish = session.finish();
  result.fault = session.fault();
  result.synthetic = model.synthetic() || (options.source && options.source->synthetic());

  Identity& identity = result.identity;
  identity.law = kernels::kLaw;
  identity.engine = engine;
  identity.model_sha256 = to_hex(model.file_sha256());
  identity.model_name = model.file().string("general.name").value_or(model.file().name());
  identity.device = backend.text();
  identity.isa = backend.isa;
  identity.threads = backend.threads;
  identity.k_type = kernels::kv_type_name(options.k_type);
  identity.v_type = kernels::kv_type_name(options.v_type);
  if (options.source) {
    identity.draft_source = options.source->name();
    identity.draft_sha256 = options.source->file_sha256();
  }
  identity.depth = options.depth;
  identity.sampling = options.sampling;
  identity.context = options.context;
  identity.chunk = options.chunk;
  return result;
}

Json to_json(const sample::Parameters& parameters) {
  Json bias = Json::array();
  for (const auto& [id, value] : parameters.logit_bias) {
    bias.push_back(std::isinf(value) ? Json{id, false} : Json{id, decimal(value)});
  }
  Json stages = Json::array();
  for (const sample::Stage stage : parameters.stages) stages.push_back(sample::stage_name(stage));
  return {{"seed", parameters.seed},
          {"choice_index", parameters.choice_index},
          {"temperature", decimal(parameters.temperature)},
          {"top_k", parameters.top_k},
          {"top_p", decimal(parameters.top_p)},
          {"min_p", decimal(parameters.min_p)},
          {"repeat_last_n", parameters.repeat_last_n},
          {"repeat_penalty", decimal(parameters.repeat_penalty)},
          {"frequency_penalty", decimal(parameters.frequency_penalty)},
          {"presence_penalty", decimal(parameters.presence_penalty)},
          {"logit_bias", bias},
          {"samplers", stages}};
}

Json to_json(const Identity& identity) {
  Json draft = {{"source", identity.draft_source}};
  if (!identity.draft_sha256.empty()) draft["sha256"] = identity.draft_sha256;
  return {{"law", identity.law},
          {"engine", identity.engine.name},
          {"binary_sha256",
           identity.engine.binary_sha256.empty() ? Json() : Json(identity.engine.binary_sha256)},
          {"model_sha256", identity.model_sha256},
          {"model_name", identity.model_name},
          {"device", identity.device},
          {"isa", identity.isa},
          {"threads", identity.threads},
          {"k_type", identity.k_type},
          {"v_type", identity.v_type},
          {"draft", draft},
          {"depth",
           {{"policy", identity.depth.automatic ? "auto" : "fixed"},
            {"n_max", identity.depth.n_max},
            {"n_min", identity.depth.n_min},
            {"p_min", decimal(identity.depth.p_min)}}},
          {"sampling", to_json(identity.sampling)},
          {"context", identity.context},
          {"chunk", identity.chunk}};
}

Json to_json(const Result& result) {
  Json parts = Json::array();
  for (const DraftCounts::Part& part : result.draft.parts) {
    parts.push_back({{"source", part.source},
                     {"drafted", sum(part.proposed_at)},
                     {"accepted", sum(part.accepted_at)},
                     {"per_position", shares(part.accepted_at, part.proposed_at)}});
  }
  Json json = {{"prompt_tokens", result.prompt_tokens},
               {"cached_tokens", result.cached_tokens},
               {"generated_tokens", result.generated_tokens},
               {"token_sha256", result.token_sha256},
               {"ttft_ms", result.timing.ttft_ms},
               {"decode_ms", result.timing.decode_ms},
               {"first_tokens", result.timing.first_tokens},
               {"decode_tok_s", result.decode_tok_s()},
               {"wall_tok_s", result.wall_tok_s()},
               {"draft",
                {{"source", result.draft.source},
                 {"steps", result.draft.steps},
                 {"drafted", result.draft.drafted},
                 {"accepted", result.draft.accepted},
                 {"per_position", shares(result.draft.accepted_at, result.draft.proposed_at)},
                 {"depths", result.draft.depths},
                 {"parts", parts},
                 {"mean_accepted_len", result.mean_accepted_len()}}},
               {"phases_ms",
                {{"prompt", result.phases.prompt},
                 {"draft", result.phases.draft},
                 {"verify", result.phases.verify},
                 {"sample", result.phases.sample},
                 {"commit", result.phases.commit},
                 {"emit", result.phases.emit}}},
               {"finish_reason", finish_name(result.finish)}};
  if (!result.fault.empty()) json["fault"] = result.fault;
  json["identity"] = to_json(result.identity);
  json["synthetic"] = result.synthetic;
  return json;
}

}  // namespace lockstep::decode
