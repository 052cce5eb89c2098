// vLLM's `bench serve --save-result`: one object of totals; with --save-detailed also lists with
// one element a request (input_lens, output_lens, ttfts and itls in seconds).
#include <algorithm>
#include <cmath>

#include "lab/results/read_context.h"

namespace lockstep::lab {
namespace {

constexpr size_t kMaxRows = 100'000;

const Json* list_of(const Json& result, std::string_view name) {
  const Json* list = at_path(result, name);
  return list && list->is_array() ? list : nullptr;
}

}  // namespace

void read_vllm_bench(Reading& reading, const Json& result) {
  const Origin logged = origin_in(reading, Provenance::logged, "");
  const Origin inferred = origin_in(reading, Provenance::inferred, "");
  Object identity(Kind::identity);
  // The client knows neither the engine nor its settings: the names are those it was given.
  copy_fact(identity, logged, result, "model_id", "requested.model.name", Want::text);
  copy_fact(identity, logged, result, "tokenizer_id", "requested.tokenizer", Want::text);
  copy_fact(identity, logged, result, at_path(result, "backend") ? "backend" : "endpoint_type",
            "requested.backend", Want::text);
  for (const std::string_view key : kIdentityKeys) {
    identity.absent(logged, fmt::format("effective.{}", key), "the client does not know it");
  }

  Object run(Kind::run);
  set_place(run, reading, "");
  run.ref(logged, "identity", identity.id());
  copy_fact(run, logged, result, "date", "started_at", Want::text);
  copy_fact(run, logged, result, "label", "name", Want::text);
  if (const std::string model = identity.value("requested.model.name"); !model.empty()) {
    run.text(inferred, "lane", model);
  }
  const auto copy = [&](std::string_view path, std::string_view name, Want want) {
    copy_fact(run, logged, result, path, name, want);
  };
  copy("max_concurrency", "concurrency", Want::integer);
  copy("max_concurrent_requests", "concurrency_seen", Want::integer);
  if (const Json* rate = at_path(result, "request_rate")) {
    run.text(logged, "request_rate", plain(*rate));
  } else {
    run.absent(logged, "request_rate", "not in the file");
  }
  copy("num_prompts", "requests.asked", Want::integer);
  copy("completed", "requests.completed", Want::integer);
  copy("failed", "requests.failed", Want::integer);
  copy("duration", "duration_s", Want::real);
  copy("total_input_tokens", "total.prompt_tokens", Want::integer);
  copy("total_output_tokens", "total.generated_tokens", Want::integer);
  copy("output_throughput", "total.tok_s", Want::real);
  copy("median_tpot_ms", "median_tpot_ms", Want::real);
  copy("median_ttft_ms", "median_ttft_ms", Want::real);
  copy("spec_decode_draft_tokens", "draft.drafted", Want::integer);
  copy("spec_decode_accepted_tokens", "draft.accepted", Want::integer);
  copy("spec_decode_num_drafts", "draft.steps", Want::integer);
  copy("spec_decode_acceptance_length", "draft.mean_len", Want::real);
  copy("spec_decode_per_position_acceptance_rates", "draft.per_position", Want::json);
  const std::string run_id = run.id(), identity_id = identity.id();

  reading.objects.push_back(std::move(identity));
  reading.objects.push_back(std::move(run));

  const Json* in = list_of(result, "input_lens");
  const Json* out = list_of(result, "output_lens");
  const Json* ttfts = list_of(result, "ttfts");
  const Json* itls = list_of(result, "itls");
  const Json* errors = list_of(result, "errors");
  if (!out || !ttfts || out->size() != ttfts->size()) {
    add_note(reading, "no lists of requests: only totals (--save-detailed keeps the requests)");
    return;
  }
  const size_t n = std::min(out->size(), kMaxRows);
  if (n < out->size()) {
    skip(reading, fmt::format("more than {} requests: the others stay in the artifact", kMaxRows));
  }
  for (size_t i = 0; i < n; ++i) {
    const std::string place = fmt::format("requests[{}]", i);
    const Origin here = origin_in(reading, Provenance::logged, place);
    Object row(Kind::row);
    set_place(row, reading, place);
    row.ref(here, "run", run_id);
    row.ref(here, "identity", identity_id);
    row.absent(here, "index", "how many requests the server had before is not in the file");
    row.absent(here, "cached_tokens", "not in the file");
    const auto element = [&](const Json* list) -> const Json* {
      return list && i < list->size() ? &(*list)[i] : nullptr;
    };
    const auto count = [&](const Json* value, std::string_view name) {
      if (value && value->is_number_integer()) {
        row.integer(here, name, value->get<int64_t>());
      } else {
        row.absent(here, name, "not in the file");
      }
    };
    count(element(in), "prompt_tokens");
    count(element(out), "generated_tokens");
    const Json* ttft = element(ttfts);
    if (ttft && ttft->is_number()) {
      row.real(here, "ttft_ms", ttft->get<double>() * 1e3);
    } else {
      row.absent(here, "ttft_ms", "not in the file");
    }
    const Json* gaps = element(itls);
    const bool numbers =
        gaps && gaps->is_array() &&
        std::all_of(gaps->begin(), gaps->end(), [](const Json& g) { return g.is_number(); });
    if (numbers) {
      double seconds = 0;
      for (const Json& gap : *gaps) seconds += gap.get<double>();
      row.real(here, "decode_ms", seconds * 1e3);
      // Events, not tokens: one event may bring several tokens.
      row.integer(here, "events", static_cast<int64_t>(gaps->size()) + 1);
      const auto tokens = row.find("generated_tokens")->integer();
      if (tokens && *tokens > 1 && seconds > 0) {
        row.real(origin_in(reading, Provenance::inferred, place), "decode_tok_s",
                 static_cast<double>(*tokens - 1) / seconds);
        row.text(origin_in(reading, Provenance::inferred, place), "denominator", "n-1");
      }
    }
    if (const Json* error = element(errors); error && error->is_string() && *error != "") {
      row.text(here, "error", error->get<std::string>().substr(0, 2000));
    }
    reading.objects.push_back(std::move(row));
  }
}

}  // namespace lockstep::lab
