// Lockstep's own result objects (docs/json.md): `run --json`, `bench --json`, `bench -o jsonl`;
// what `serve` adds to its answers is read in server_answer.cc.
#include "lab/results/read_context.h"

namespace lockstep::lab {
namespace {

struct Mapped {
  std::string_view path, key;
  Want want;
};
constexpr Mapped kIdentity[] = {{"model_sha256", "model.sha256", Want::text},
                                {"model_name", "model.name", Want::text},
                                {"binary_sha256", "engine.binary_sha256", Want::text},
                                {"law", "law", Want::text},
                                {"device", "device", Want::text},
                                {"isa", "isa", Want::text},
                                {"threads", "threads", Want::integer},
                                {"k_type", "kv.k_type", Want::text},
                                {"v_type", "kv.v_type", Want::text},
                                {"draft.source", "draft.source", Want::text},
                                {"draft.sha256", "draft.sha256", Want::json},
                                {"depth.policy", "draft.policy", Want::text},
                                {"depth.n_max", "n_max", Want::integer},
                                {"depth.n_min", "n_min", Want::integer},
                                {"depth.p_min", "p_min", Want::real},
                                {"sampling", "sampling", Want::json},
                                {"context", "context", Want::integer},
                                {"chunk", "chunk", Want::integer}};

void model_lane(Object& object, const Origin& origin, const Object& identity) {
  const std::string model = identity.value("effective.model.name");
  const std::string sha = identity.value("effective.model.sha256");
  if (model.empty() && sha.empty()) return;
  object.text(origin, "lane",
              fmt::format("{} {} {}/{}", model.empty() ? sha.substr(0, 12) : model,
                          identity.value("effective.device"), identity.value("effective.kv.k_type"),
                          identity.value("effective.kv.v_type")));
}

}  // namespace

Object lockstep_identity(const Reading& reading, const Json* identity, std::string_view place) {
  const Origin origin = origin_in(reading, Provenance::logged, place);
  Object object(Kind::identity);
  const Json none = Json::object();
  const Json& from = identity ? *identity : none;
  const Json* engine = at_path(from, "engine");
  if (engine && engine->is_string()) {
    // "lockstep 0.1.0"
    const std::string text = engine->get<std::string>();
    const size_t blank = text.find(' ');
    object.text(origin, "effective.engine.name", text.substr(0, blank));
    if (blank != std::string::npos) {
      object.text(origin, "effective.engine.version", text.substr(blank + 1));
    }
  } else {
    object.absent(origin, "effective.engine.name", "not in the file");
  }
  for (const Mapped& mapped : kIdentity) {
    copy_fact(object, origin, from, mapped.path, fmt::format("effective.{}", mapped.key),
              mapped.want);
  }
  object.text(origin, "receipt.effective", "the engine's own result object");
  return object;
}

void read_lockstep_run(Reading& reading, const Json& result) {
  const Json* body = at_path(result, "result");
  if (!body || !body->is_object()) {
    skip(reading, "a lockstep.run/1 without its result");
    return;
  }
  const Origin logged = origin_in(reading, Provenance::logged, "result");
  const Origin inferred = origin_in(reading, Provenance::inferred, "result");
  const Object identity = lockstep_identity(reading, at_path(*body, "identity"), "result.identity");

  Object run(Kind::run);
  set_place(run, reading, "");
  run.text(logged, "engine", "lockstep");
  run.ref(logged, "identity", identity.id());
  model_lane(run, inferred, identity);
  // A process of `lockstep run` decodes one request: nothing else has the model.
  run.integer(inferred, "slots", 1);
  copy_fact(run, logged, *body, "synthetic", "synthetic", Want::boolean);

  Object row(Kind::row);
  set_place(row, reading, "result");
  row.ref(logged, "run", run.id());
  row.ref(logged, "identity", identity.id());
  row.integer(inferred, "index", 0);
  const auto copy = [&](std::string_view path, std::string_view name, Want want) {
    copy_fact(row, logged, *body, path, name, want);
  };
  for (const std::string_view name : {"prompt_tokens", "cached_tokens", "generated_tokens"}) {
    copy(name, name, Want::integer);
  }
  for (const std::string_view name : {"ttft_ms", "decode_ms", "decode_tok_s", "wall_tok_s"}) {
    copy(name, name, Want::real);
  }
  // Older results don't have it.
  if (at_path(*body, "first_tokens")) copy("first_tokens", "first_tokens", Want::integer);
  copy("token_sha256", "token_sha256", Want::text);
  copy("draft.source", "draft.source", Want::text);
  for (const std::string_view name : {"draft.steps", "draft.drafted", "draft.accepted"}) {
    copy(name, name, Want::integer);
  }
  copy("draft.mean_accepted_len", "draft.mean_len", Want::real);
  copy("draft.per_position", "draft.per_position", Want::json);
  copy("draft.depths", "draft.depths", Want::json);
  copy("phases_ms.prompt", "prompt_ms", Want::real);
  copy("finish_reason", "finish_reason", Want::text);
  copy("synthetic", "synthetic", Want::boolean);
  const Json* prompt = at_path(result, "prompt");
  if (prompt && prompt->is_string()) {
    row.text(inferred, "prompt_sha256", text_sha256(clean_text(prompt->get<std::string>())));
  } else {
    row.absent(logged, "prompt_sha256", "no prompt in the file");
  }
  copy_fact(row, logged, result, "finish", "finish", Want::text);
  row.absent(logged, "requested_tokens", "the result object does not say what -n asked for");
  row.text(logged, "denominator", "n-1");  // tokens after the first over the time after it

  reading.objects.push_back(identity);
  reading.objects.push_back(std::move(run));
  reading.objects.push_back(std::move(row));
}

void read_lockstep_bench_row(Reading& reading, const Json& test, std::string_view place) {
  if (!test.is_object() || !at_path(test, "tok_s")) {
    skip(reading, fmt::format("{}: a bench row without tok_s", place));
    return;
  }
  const Origin logged = origin_in(reading, Provenance::logged, place);
  const Origin inferred = origin_in(reading, Provenance::inferred, place);
  Object identity = lockstep_identity(reading, at_path(test, "identity"), "identity");
  // bench forces its tokens: it drafts nothing and samples nothing.
  const Origin by_design{Provenance::inferred, "bench forces its tokens"};
  identity.text(by_design, "effective.draft.source", "");
  identity.text(by_design, "effective.sampling", "none");

  Object run(Kind::run);
  set_place(run, reading, place);
  run.text(logged, "engine", "lockstep");
  run.ref(logged, "identity", identity.id());
  model_lane(run, inferred, identity);
  run.integer(inferred, "slots", 1);
  copy_fact(run, logged, test, "synthetic", "synthetic", Want::boolean);

  Object row(Kind::row);
  set_place(row, reading, place);
  row.ref(logged, "run", run.id());
  row.ref(logged, "identity", identity.id());
  const auto copy = [&](std::string_view path, std::string_view name, Want want) {
    copy_fact(row, logged, test, path, name, want);
  };
  copy("test", "test", Want::text);
  copy("kind", "test_kind", Want::text);
  for (const std::string_view name : {"tokens", "depth", "width", "passes", "repetitions"}) {
    copy(name, name, Want::integer);
  }
  const Json* kind = at_path(test, "kind");
  const bool decode = kind && *kind == "tg";
  copy("tok_s", decode ? "decode_tok_s" : "tok_s", Want::real);
  copy("ms", "ms_per_pass", Want::real);
  copy("ms_list", "samples_ms", Want::json);
  copy("bytes", "bytes_per_pass", Want::real);
  copy("read_gb_s", "bandwidth_gb_s", Want::real);
  copy("fraction", "fraction", Want::real);
  copy("synthetic", "synthetic", Want::boolean);
  row.boolean(inferred, "warmed", true);  // one pass before the others is not counted
  row.text(logged, "denominator", "n");
  reading.objects.push_back(std::move(identity));
  reading.objects.push_back(std::move(run));
  reading.objects.push_back(std::move(row));
}

void read_lockstep_bench(Reading& reading, const Json& result) {
  const Json* rows = at_path(result, "rows");
  if (!rows || !rows->is_array()) {
    skip(reading, "a lockstep.bench/1 without rows");
    return;
  }
  size_t i = 0;
  for (const Json& row : *rows) {
    read_lockstep_bench_row(reading, row, fmt::format("rows[{}]", i++));
  }
}

}  // namespace lockstep::lab
