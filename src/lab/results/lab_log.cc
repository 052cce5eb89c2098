// `lockstep lab log --json` (lockstep.lab.log/1): lives of servers and their requests, read in
// logs.
#include <map>
#include <optional>

#include "lab/results/read_context.h"

namespace lockstep::lab {
namespace {

std::optional<int64_t> integer_at(const Json& from, std::string_view path) {
  const Json* value = at_path(from, path);
  if (!value || !value->is_number_integer()) return std::nullopt;
  return value->get<int64_t>();
}

// A server's life: what was asked of its drafter, and what its counters show.
Object identity_of_life(const Reading& reading, const Json& life, std::string_view place) {
  const Origin logged = origin_in(reading, Provenance::logged, place);
  const Origin inferred =
      origin_in(reading, Provenance::inferred, fmt::format("{}, counters", place));
  Object identity(Kind::identity);
  copy_fact(identity, logged, life, "engine", "effective.engine.name", Want::text);
  copy_fact(identity, logged, life, "build", "effective.engine.build", Want::text);
  const Json* speculation = at_path(life, "speculation");
  if (speculation && speculation->is_array() && !speculation->empty()) {
    const Json& first = speculation->front();
    copy_fact(identity, logged, first, "type", "requested.draft.source", Want::text);
    copy_fact(identity, logged, first, "n_max", "requested.n_max", Want::integer);
    copy_fact(identity, logged, first, "n_min", "requested.n_min", Want::integer);
    copy_fact(identity, logged, first, "p_min", "requested.p_min", Want::real);
  }
  copy_fact(identity, inferred, life, "draft_length.effective", "effective.n_max", Want::integer);
  for (const std::string_view key : kIdentityKeys) {
    const std::string name = fmt::format("effective.{}", key);
    if (!identity.find(name)) identity.absent(logged, name, "the log does not say it");
  }
  identity.text(logged, "receipt.effective", "the server's log");
  return identity;
}

}  // namespace

void read_lab_log(Reading& reading, const Json& result) {
  const Json* requests = at_path(result, "requests");
  if (!requests || !requests->is_array()) {
    skip(reading, "a lockstep.lab.log/1 without requests");
    return;
  }
  const Json* lives = at_path(result, "servers");
  std::vector<std::string> run_ids, identity_ids;
  const auto add_life = [&](const Json& life, std::string_view place) {
    const Origin logged = origin_in(reading, Provenance::logged, place);
    const Object identity = identity_of_life(reading, life, place);
    Object run(Kind::run);
    set_place(run, reading, place);
    run.ref(logged, "identity", identity.id());
    copy_fact(run, logged, life, "engine", "engine", Want::text);
    copy_fact(run, logged, life, "n_slots", "slots", Want::integer);
    copy_fact(run, logged, result, "generation", "generation", Want::json);
    identity_ids.push_back(identity.id());
    run_ids.push_back(run.id());
    reading.objects.push_back(identity);
    reading.objects.push_back(std::move(run));
  };
  if (lives && lives->is_array()) {
    size_t i = 0;
    for (const Json& life : *lives) add_life(life, fmt::format("servers[{}]", i++));
  }
  if (run_ids.empty()) add_life(result, "");

  // What the log's own arithmetic found wrong, by request.
  std::map<int64_t, Json> wrong;
  const Json* contradictions = at_path(result, "contradictions");
  if (contradictions && contradictions->is_array()) {
    for (const Json& one : *contradictions) {
      const Json* text = at_path(one, "text");
      wrong[integer_at(one, "request").value_or(-1)].push_back(
          text && text->is_string() ? *text : Json(plain(one)));
    }
  }

  int64_t i = 0;
  for (const Json& request : *requests) {
    const std::string place = fmt::format("requests[{}]", i);
    const int64_t index = i++;
    if (!request.is_object()) {
      skip(reading, fmt::format("{}: no object", place));
      continue;
    }
    const Origin logged = origin_in(reading, Provenance::logged, place);
    const auto life = static_cast<size_t>(integer_at(request, "server").value_or(0));
    Object row(Kind::row);
    set_place(row, reading, place);
    if (life < run_ids.size()) {
      row.ref(logged, "run", run_ids[life]);
      row.ref(logged, "identity", identity_ids[life]);
    } else {
      add_note(reading, fmt::format("{}: server {} is not in the file", place, life));
    }
    // From 1 in the log; known where the server's start is in it.
    const bool whole = !lives || life >= lives->size() ||
                       at_path((*lives)[life], "started_here") == nullptr ||
                       *at_path((*lives)[life], "started_here") == true;
    const auto ordinal = integer_at(request, "ordinal");
    if (ordinal && *ordinal >= 1 && whole) {
      row.integer(logged, "index", *ordinal - 1);
    } else {
      row.absent(logged, "index", whole ? "not in the file" : "the log begins in the middle");
    }
    const auto copy = [&](std::string_view path, std::string_view name, Want want) {
      copy_fact(row, logged, request, path, name, want);
    };
    for (const std::string_view name :
         {"prompt_tokens", "cached_tokens", "evaluated_tokens", "generated_tokens"}) {
      copy(name, name, Want::integer);
    }
    for (const std::string_view name : {"prompt_ms", "prompt_tok_s", "decode_ms", "decode_tok_s"}) {
      copy(name, name, Want::real);
    }
    copy("decode_tok_s_printed", "printed_tok_s", Want::real);
    copy("denominator", "printed_denominator", Want::text);
    copy("truncated", "truncated", Want::boolean);
    copy("beside_other_slot", "other_slot", Want::boolean);
    if (at_path(request, "after_fault")) copy("after_fault", "after_fault", Want::boolean);
    copy("witnesses", "witnesses", Want::json);
    copy("cached_from", "cached_from", Want::text);
    row.absent(logged, "finish_reason", "the log does not say it");
    const Json* draft = at_path(request, "draft");
    if (draft && draft->is_object()) {
      copy("draft.drafted", "draft.drafted", Want::integer);
      copy("draft.accepted", "draft.accepted", Want::integer);
      // What the server printed, or what follows from the steps.
      copy(at_path(*draft, "printed_mean") && !at_path(*draft, "printed_mean")->is_null()
               ? "draft.printed_mean"
               : "draft.mean_accepted_len",
           "draft.mean_len", Want::real);
      copy("draft.per_position", "draft.per_position", Want::json);
      copy("draft.steps", "draft.verify_steps", Want::integer);
    } else {
      row.absent(logged, "draft.drafted", "no draft line: nothing was drafted, which is not 0 %");
    }
    if (wrong.contains(index)) {
      row.json(logged, "contradictions",
               wrong[index].dump(-1, ' ', false, Json::error_handler_t::replace));
    }
    reading.objects.push_back(std::move(row));
  }
}

}  // namespace lockstep::lab
