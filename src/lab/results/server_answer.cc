// An answer of llama-server (/completion, /v1/chat/completions and its like) or of `lockstep
// serve`, as the client got it: `timings`, and what else of it says what ran.
#include <cstdint>

#include "lab/results/read_context.h"

namespace lockstep::lab {
namespace {

// The first of these that is there.
const Json* first_of(const Json& answer, std::initializer_list<std::string_view> paths) {
  for (const std::string_view path : paths) {
    const Json* value = at_path(answer, path);
    if (value && !value->is_null()) return value;
  }
  return nullptr;
}

Object identity_of(const Reading& reading, const Json& answer, std::string_view place) {
  const Origin logged = origin_in(reading, Provenance::logged, place);
  if (const Json* own = at_path(answer, "lockstep.identity"); own && own->is_object()) {
    return lockstep_identity(reading, own, fmt::format("{} lockstep.identity", place));
  }
  Object identity(Kind::identity);
  copy_fact(identity, logged, answer, "model", "effective.model.name", Want::text);
  copy_fact(identity, logged, answer, "system_fingerprint", "effective.engine.build", Want::text);
  // The settings in force: some of those that a request sends are clamped without a word.
  if (const Json* settings = at_path(answer, "generation_settings")) {
    copy_fact(identity, logged, answer, "generation_settings", "effective.sampling", Want::json);
    copy_fact(identity, logged, *settings, "speculative.n_max", "effective.n_max", Want::integer);
  }
  for (const std::string_view key : kIdentityKeys) {
    const std::string name = fmt::format("effective.{}", key);
    if (!identity.find(name)) identity.absent(logged, name, "an answer does not say it");
  }
  identity.text(logged, "receipt.effective", "the server's answer");
  return identity;
}

// SHA-256 over the ids as little-endian int32, as result objects have it; "" where they are no ids.
std::string hash_of_ids(const Json& ids) {
  if (!ids.is_array() || ids.empty()) return "";
  std::string bytes;
  for (const Json& id : ids) {
    if (!id.is_number_integer()) return "";
    const auto value = static_cast<uint32_t>(id.get<int64_t>());
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(value >> shift & 0xFF);
  }
  return text_sha256(bytes);
}

void add_tokens(Object& row, const Origin& logged, const Origin& inferred, const Json& answer) {
  const Json& timings = *at_path(answer, "timings");
  const auto copy = [&](std::string_view path, std::string_view name, Want want) {
    copy_fact(row, logged, timings, path, name, want);
  };
  copy("cache_n", "cached_tokens", Want::integer);
  copy("prompt_n", "evaluated_tokens", Want::integer);
  copy("prompt_ms", "prompt_ms", Want::real);
  copy("prompt_per_second", "prompt_tok_s", Want::real);
  copy("predicted_n", "generated_tokens", Want::integer);
  copy("predicted_ms", "decode_ms", Want::real);
  copy("predicted_per_second", "printed_tok_s", Want::real);
  copy("draft_n", "draft.drafted", Want::integer);
  copy("draft_n_accepted", "draft.accepted", Want::integer);
  // The prompt's length; `tokens_cached` is that of the slot at the end and says nothing of reuse.
  if (const Json* prompt = first_of(answer, {"usage.prompt_tokens", "tokens_evaluated"});
      prompt && prompt->is_number_integer()) {
    row.integer(logged, "prompt_tokens", prompt->get<int64_t>());
  } else {
    row.absent(logged, "prompt_tokens", "not in the file");
  }
  if (const Json* cached = at_path(answer, "usage.prompt_tokens_details.cached_tokens");
      cached && cached->is_number_integer()) {
    row.json(logged, "witness.usage_cached_tokens", cached->dump());
  }
  const Fact *n = row.find("generated_tokens"), *ms = row.find("decode_ms");
  if (n->integer() && ms->number() && *n->integer() > 1 && *ms->number() > 0) {
    row.real(inferred, "decode_tok_s",
             static_cast<double>(*n->integer() - 1) * 1e3 / *ms->number());
  }
}

}  // namespace

void read_server_answer(Reading& reading, const Json& answer, std::string_view place) {
  const Origin logged = origin_in(reading, Provenance::logged, place);
  const Origin inferred = origin_in(reading, Provenance::inferred, place);
  const Object identity = identity_of(reading, answer, place);
  Object run(Kind::run);
  set_place(run, reading, place);
  run.ref(logged, "identity", identity.id());
  run.absent(logged, "slots", "an answer does not say it");

  Object row(Kind::row);
  set_place(row, reading, place);
  row.ref(logged, "run", run.id());
  row.ref(logged, "identity", identity.id());
  row.absent(logged, "index", "how many requests the server had before is not in an answer");
  add_tokens(row, logged, inferred, answer);
  if (const Json* finish = first_of(answer, {"stop_type", "choices.finish_reason"});
      finish && finish->is_string()) {
    row.text(logged, "finish_reason", finish->get<std::string>());
  } else if (const Json* choices = at_path(answer, "choices");
             choices && choices->is_array() && !choices->empty()) {
    copy_fact(row, logged, choices->front(), "finish_reason", "finish_reason", Want::text);
  } else {
    row.absent(logged, "finish_reason", "not in the file");
  }
  copy_fact(row, logged, answer, "truncated", "truncated", Want::boolean);
  copy_fact(row, logged, answer, "generation_settings.n_predict", "requested_tokens",
            Want::integer);
  if (const Json* prompt = at_path(answer, "prompt"); prompt && prompt->is_string()) {
    row.text(inferred, "prompt_sha256", text_sha256(clean_text(prompt->get<std::string>())));
  } else {
    row.absent(logged, "prompt_sha256", "no prompt in the file");
  }
  const Json* own = at_path(answer, "lockstep");
  const Json* ids = at_path(answer, "tokens");
  const std::string hash = ids ? hash_of_ids(*ids) : "";
  if (own && own->is_object()) {
    copy_fact(row, logged, *own, "token_sha256", "token_sha256", Want::text);
    if (at_path(*own, "first_tokens")) {
      copy_fact(row, logged, *own, "first_tokens", "first_tokens", Want::integer);
    }
    copy_fact(row, logged, *own, "draft.source", "draft.source", Want::text);
    copy_fact(row, logged, *own, "synthetic", "synthetic", Want::boolean);
  } else if (!hash.empty()) {
    row.text(inferred, "token_sha256", hash);
  } else {
    row.absent(logged, "token_sha256", "no token ids in the file (return_tokens)");
  }
  reading.objects.push_back(identity);
  reading.objects.push_back(std::move(run));
  reading.objects.push_back(std::move(row));
}

}  // namespace lockstep::lab
