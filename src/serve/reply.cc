#include "serve/reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

#include "base/sha256.h"
#include "text/utf8_stream.h"

namespace lockstep::serve {
namespace {

double per_second(int64_t n, double ms) {
  return n > 0 && ms > 0 ? 1e3 * static_cast<double>(n) / ms : 0.0;
}
double each(double ms, int64_t n) {
  return n > 0 ? ms / static_cast<double>(n) : 0.0;
}

// The shortest decimal that reads back as the same binary32: 0.8, not 0.800000011920929.
double decimal(float value) {
  char text[64];
  const auto written = std::to_chars(text, text + sizeof text, value);
  double shortest = 0;
  std::from_chars(text, written.ptr, shortest);
  return shortest;
}

Json number_or_null(double value) {
  return std::isfinite(value) ? Json(value) : Json();
}

Json bytes_json(const std::string& piece) {
  Json bytes = Json::array();
  for (const char c : piece) bytes.push_back(static_cast<uint8_t>(c));
  return bytes;
}

// A piece of text, or its bytes where it is a part of a character.
Json piece_json(const std::string& piece) {
  return text::well_formed_utf8(piece) == piece ? Json(piece) : bytes_json(piece);
}

// Of a call. Nine letters and digits: what the strictest templates take.
std::string call_id(const std::string& answer, size_t sequence, int index) {
  constexpr std::string_view kLetters =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  const std::string named = fmt::format("{} {} {}", answer, sequence, index);
  const Digest digest = sha256(std::as_bytes(std::span(named)));
  std::string id;
  for (size_t i = 0; i < 9; ++i) {
    id += kLetters[static_cast<uint8_t>(digest[i]) % kLetters.size()];
  }
  return id;
}

// One after the other, as one.
void append(ChatDelta& to, ChatDelta more) {
  to.reasoning += more.reasoning;
  to.content += more.content;
  for (CallDelta& call : more.calls) {
    if (!to.calls.empty() && to.calls.back().index == call.index) {
      to.calls.back().arguments += call.arguments;
    } else {
      to.calls.push_back(std::move(call));
    }
  }
}

Json call_json(const CallDelta& call, bool stream) {
  Json json = Json::object();
  if (stream) json["index"] = call.index;
  Json function = Json::object();
  if (!call.name.empty()) {
    json["id"] = call.id;
    json["type"] = "function";
    function["name"] = call.name;
  }
  function["arguments"] = call.arguments;
  json["function"] = std::move(function);
  return json;
}

size_t count_characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

}  // namespace

std::string dump(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string server_sent(const Json& object) {
  return fmt::format("data: {}\n\n", dump(object));
}

Json timings_json(const Timings& t) {
  const int64_t after_first = t.predicted_n - t.first_n;
  Json json = {{"cache_n", t.cache_n},
               {"prompt_n", t.prompt_n},
               {"prompt_ms", t.prompt_ms},
               {"prompt_per_token_ms", each(t.prompt_ms, t.prompt_n)},
               {"prompt_per_second", per_second(t.prompt_n, t.prompt_ms)},
               {"predicted_n", t.predicted_n},
               {"predicted_ms", t.predicted_ms},
               {"predicted_per_token_ms", each(t.predicted_ms, after_first)},
               {"predicted_per_second", per_second(after_first, t.predicted_ms)}};
  if (t.draft_n > 0) {
    json["draft_n"] = t.draft_n;
    json["draft_n_accepted"] = t.draft_n_accepted;
  }
  return json;
}

Json settings_json(const Request& request, const sample::Parameters& p, int64_t context) {
  Json bias = Json::array();
  for (const auto& [id, value] : p.logit_bias) {
    bias.push_back(
        {{"token", id}, {"bias", std::isinf(value) ? Json(false) : Json(decimal(value))}});
  }
  Json stages = Json::array();
  for (const sample::Stage stage : p.stages) stages.push_back(sample::stage_name(stage));
  return {{"seed", p.seed},
          {"temperature", decimal(p.temperature)},
          {"top_k", p.top_k},
          {"top_p", decimal(p.top_p)},
          {"min_p", decimal(p.min_p)},
          {"repeat_last_n", p.repeat_last_n},
          {"repeat_penalty", decimal(p.repeat_penalty)},
          {"presence_penalty", decimal(p.presence_penalty)},
          {"frequency_penalty", decimal(p.frequency_penalty)},
          {"samplers", stages},
          {"logit_bias", bias},
          {"ignore_eos", request.ignore_eos},
          {"stop", request.stops},
          {"n_predict", request.max_tokens},
          {"max_tokens", request.max_tokens},
          {"n", request.n},
          {"n_probs", request.logprobs ? request.top : 0},
          {"stream", request.stream},
          {"cache_prompt", request.cache_prompt},
          {"timings_per_token", request.timings_per_token},
          {"n_ctx", context}};
}

Reply::Reply(std::shared_ptr<const Job> job, text::Tokenizer tokenizer, ReplyContext context)
    : job_(std::move(job)), tokenizer_(std::move(tokenizer)), context_(std::move(context)) {
  written_.resize(static_cast<size_t>(job_->sequences()));
  const bool chat = job_->request.surface == Surface::oai_chat;
  id_ = fmt::format("{}-{:08x}{:08x}", chat ? "chatcmpl" : "cmpl",
                    static_cast<uint32_t>(context_.created), static_cast<uint32_t>(job_->id));
  if (!chat) return;
  for (size_t i = 0; i < written_.size(); ++i) {
    written_[i].output =
        std::make_unique<ChatOutput>(job_->prepared.output, !job_->request.stream,
                                     [id = id_, i](int index) { return call_id(id, i, index); });
  }
}

int64_t Reply::prompt_tokens() const {
  int64_t tokens = 0;
  for (const auto& prompt : job_->prepared.prompts) tokens += std::ssize(prompt);
  return tokens;
}

Json Reply::usage() const {
  int64_t completion = 0, cached = 0;
  for (const Written& written : written_) {
    completion += written.generated;
    cached += written.cached;
  }
  const int64_t prompt = prompt_tokens();
  // Of n choices of one prompt each may have taken it over: no more can be cached than there is.
  return {{"completion_tokens", completion},
          {"prompt_tokens", prompt},
          {"total_tokens", prompt + completion},
          {"prompt_tokens_details", {{"cached_tokens", std::min(cached, prompt)}}}};
}

Json Reply::probabilities(const std::vector<TokenProbability>& list) const {
  const auto entry = [&](int32_t id, double logprob) -> Json {
    const std::string piece = tokenizer_.piece(id, true);
    return {{"id", id},
            {"token", text::well_formed_utf8(piece)},
            {"bytes", bytes_json(piece)},
            {"logprob", number_or_null(logprob)}};
  };
  Json content = Json::array();
  for (const TokenProbability& of : list) {
    Json token = entry(of.id, of.logprob);
    token["top_logprobs"] = Json::array();
    for (const auto& top : of.top) token["top_logprobs"].push_back(entry(top.id, top.logprob));
    content.push_back(std::move(token));
  }
  return content;
}

// OpenAI's older form, with the newer one beside it, as `content`.
Json Reply::legacy_logprobs(const std::vector<TokenProbability>& list, size_t offset) const {
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(),
       offsets = Json::array();
  for (const TokenProbability& of : list) {
    const std::string piece = text::well_formed_utf8(tokenizer_.piece(of.id, true));
    tokens.push_back(piece);
    logprobs.push_back(number_or_null(of.logprob));
    Json top = Json::object();
    for (const auto& t : of.top) {
      // Several tokens may read alike once their bytes are replaced: the most probable counts.
      top.emplace(text::well_formed_utf8(tokenizer_.piece(t.id, true)), number_or_null(t.logprob));
    }
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += count_characters(piece);
  }
  return {{"tokens", tokens},
          {"token_logprobs", logprobs},
          {"top_logprobs", tops},
          {"text_offset", offsets},
          {"content", probabilities(list)}};
}

const char* Reply::finish_reason(const Event& event) const {
  if (event.stop == StopKind::limit) return "length";
  const Written& written = written_[static_cast<size_t>(event.sequence)];
  return written.output && written.output->called() ? "tool_calls" : "stop";
}

// Who proposed each token of the event.
void Reply::add_origins(Json& object, const Event& event) const {
  if (!job_->request.token_origins || event.ids.empty()) return;
  const std::vector<int32_t>& marks = job_->prepared.marks;
  Json tokens = Json::array(), drafts = Json::array();
  size_t at = 0;
  for (const StepDraft& step : event.steps) {
    drafts.push_back({step.drafted, step.accepted});
    for (int64_t i = 0; i < step.tokens && at < event.ids.size(); ++i, ++at) {
      const int32_t id = event.ids[at];
      const bool mark = std::find(marks.begin(), marks.end(), id) != marks.end();
      const char* origin = i < step.accepted                                    ? "accepted"
                           : i == step.accepted && step.drafted > step.accepted ? "corrected"
                                                                                : "plain";
      tokens.push_back(
          {{"id", id}, {"piece", piece_json(tokenizer_.piece(id, mark))}, {"origin", origin}});
    }
  }
  object["lockstep"]["tokens"] = std::move(tokens);
  object["lockstep"]["drafts"] = std::move(drafts);
}

Json Reply::envelope(const char* object) const {
  return {{"id", id_},
          {"object", object},
          {"created", context_.created},
          {"model", context_.model},
          {"system_fingerprint", context_.fingerprint}};
}

// What the last object of a sequence tells beside the surface's own fields.
void Reply::finish_choice(Json& object, const Event& event) const {
  object["timings"] = timings_json(event.timings);
  if (event.result) object["lockstep"] = decode::to_json(*event.result);
  add_origins(object, event);
}

Json Reply::progress(Json object, const Event& event) const {
  object["prompt_progress"] = {{"total", event.prompt_tokens},
                               {"cache", event.timings.cache_n},
                               {"processed", event.prompt_done},
                               {"time_ms", event.prompt_elapsed_ms}};
  return object;
}

Json Reply::completion_object(const Event& event, bool last) const {
  const auto index = static_cast<size_t>(event.sequence);
  const Written& written = written_[index];
  const Request& request = job_->request;
  Json object = {{"index", event.sequence},
                 {"content", last && !request.stream ? written.text : event.text},
                 {"tokens", Json::array()},
                 {"id_slot", event.slot},
                 {"stop", last},
                 {"model", context_.model},
                 {"tokens_predicted", event.timings.predicted_n},
                 {"tokens_evaluated", event.prompt_tokens}};
  if (request.return_tokens) {
    object["tokens"] = last && !request.stream ? written.ids : event.ids;
  }
  if (request.logprobs) object["completion_probabilities"] = probabilities(event.probabilities);
  if (!last) {
    if (request.timings_per_token) object["timings"] = timings_json(event.timings);
    add_origins(object, event);
    return object;
  }
  const auto& prompt = job_->prepared.prompts[index / static_cast<size_t>(request.n)];
  sample::Parameters sampling = job_->prepared.sampling;
  object["generation_settings"] = settings_json(request, sampling, context_.context);
  object["prompt"] = text::well_formed_utf8(tokenizer_.decode(prompt, true));
  object["has_new_line"] = written.text.find('\n') != std::string::npos;
  object["truncated"] = false;
  object["stop_type"] = stop_kind_name(event.stop);
  object["stopping_word"] = event.stopping_word;
  object["tokens_cached"] = event.state_tokens;
  finish_choice(object, event);
  return object;
}

Json Reply::chat_chunk(const Event& event, const ChatDelta& delta) const {
  Json said = Json::object();
  if (!delta.reasoning.empty()) said["reasoning_content"] = delta.reasoning;
  if (!delta.content.empty() || delta.empty()) said["content"] = delta.content;
  for (const CallDelta& call : delta.calls) said["tool_calls"].push_back(call_json(call, true));
  Json choice = {{"index", event.sequence}, {"delta", said}, {"finish_reason", Json()}};
  if (!event.probabilities.empty()) {
    choice["logprobs"] = {{"content", probabilities(event.probabilities)}};
  }
  Json object = envelope("chat.completion.chunk");
  object["choices"] = Json::array({choice});
  return object;
}

Json Reply::chat_end(const Event& event) const {
  Json object = envelope("chat.completion.chunk");
  object["choices"] = Json::array({{{"index", event.sequence},
                                    {"delta", Json::object()},
                                    {"finish_reason", finish_reason(event)}}});
  return object;
}

Json Reply::chat_message(const ChatDelta& answer) const {
  Json message = {{"role", "assistant"}, {"content", answer.content}};
  if (answer.content.empty() && !answer.calls.empty()) message["content"] = nullptr;
  if (!answer.reasoning.empty()) message["reasoning_content"] = answer.reasoning;
  for (const CallDelta& call : answer.calls) {
    message["tool_calls"].push_back(call_json(call, false));
  }
  return message;
}

Json Reply::text_chunk(const Event& event, size_t offset, bool last) const {
  Json choice = {{"index", event.sequence},
                 {"text", event.text},
                 {"logprobs", Json()},
                 {"finish_reason", last ? Json(finish_reason(event)) : Json()}};
  if (job_->request.logprobs) choice["logprobs"] = legacy_logprobs(event.probabilities, offset);
  Json object = envelope("text_completion");
  object["choices"] = Json::array({choice});
  return object;
}

void Reply::collect(const Event& event) {
  Written& written = written_[static_cast<size_t>(event.sequence)];
  if (event.kind == Event::Kind::progress) return;
  written.text += event.text;
  written.ids.insert(written.ids.end(), event.ids.begin(), event.ids.end());
  if (event.kind == Event::Kind::failed) {
    ++ended_;
    if (!failure_) failure_ = event.error;
    return;
  }
  written.generated = event.timings.predicted_n;
  written.cached = event.timings.cache_n;
  if (event.kind == Event::Kind::end) {
    ++ended_;
    written.end = event;
    if (written.output && !job_->request.stream) {
      written.answer = written.output->push(written.text);
      append(written.answer, written.output->finish());
    }
  }
}

std::string Reply::stream_chat(const Event& event) {
  Written& written = written_[static_cast<size_t>(event.sequence)];
  const Request& request = job_->request;
  const bool last = event.kind == Event::Kind::end;
  std::string out;
  if (!written.begun) {
    written.begun = true;
    Json object = chat_end(event);
    object["choices"][0]["delta"] = {{"role", "assistant"}, {"content", nullptr}};
    object["choices"][0]["finish_reason"] = nullptr;
    out += server_sent(object);
  }
  if (event.kind == Event::Kind::progress) {
    return out + server_sent(progress(chat_chunk(event, {}), event));
  }
  ChatDelta delta = written.output->push(event.text);
  if (last) append(delta, written.output->finish());
  // What an end still brings of the text goes into an object of its own: clients take the last one
  // for its finish_reason.
  if (!delta.empty() || !event.probabilities.empty() ||
      (request.token_origins && !event.ids.empty())) {
    Json object = chat_chunk(event, delta);
    if (request.timings_per_token) object["timings"] = timings_json(event.timings);
    add_origins(object, event);
    out += server_sent(object);
  }
  if (!last) return out;
  Event bare = event;
  bare.ids.clear();
  Json object = chat_end(bare);
  finish_choice(object, bare);
  return out + server_sent(object);
}

std::string Reply::stream(const Event& event) {
  Written& written = written_[static_cast<size_t>(event.sequence)];
  const Request& request = job_->request;
  const bool oai = request.surface != Surface::completion;
  const bool last = event.kind == Event::Kind::end;
  const size_t offset = written.characters;
  collect(event);
  written.characters += count_characters(event.text);
  std::string out;
  if (event.kind == Event::Kind::failed) {
    return server_sent(error_json(event.error)) + (oai ? "data: [DONE]\n\n" : "");
  }
  if (request.surface == Surface::oai_chat) {
    out = stream_chat(event);
  } else if (event.kind == Event::Kind::progress) {
    Event nothing;
    nothing.sequence = event.sequence;
    nothing.slot = event.slot;
    nothing.prompt_tokens = event.prompt_tokens;
    nothing.timings = event.timings;
    out = server_sent(progress(
        oai ? text_chunk(nothing, offset, false) : completion_object(nothing, false), event));
  } else if (!oai) {
    out = server_sent(completion_object(event, last));
  } else {
    // As of chats.
    if (!last || !event.text.empty() || !event.probabilities.empty()) {
      Json object = text_chunk(event, offset, false);
      if (request.timings_per_token) object["timings"] = timings_json(event.timings);
      add_origins(object, event);
      out += server_sent(object);
    }
    if (last) {
      Event bare = event;
      if (!out.empty()) bare.ids.clear();
      bare.text.clear();
      bare.probabilities.clear();
      Json object = text_chunk(bare, offset, true);
      finish_choice(object, bare);
      out += server_sent(object);
    }
  }
  if (complete() && oai) {
    if (request.include_usage && !failure_) {
      Json object = envelope(request.surface == Surface::oai_chat ? "chat.completion.chunk"
                                                                  : "text_completion");
      object["choices"] = Json::array();
      object["usage"] = usage();
      out += server_sent(object);
    }
    out += "data: [DONE]\n\n";
  }
  return out;
}

std::string Reply::body() const {
  const Request& request = job_->request;
  if (request.surface == Surface::completion) {
    if (written_.size() == 1) return dump(completion_object(written_[0].end, true));
    Json list = Json::array();
    for (const Written& written : written_) list.push_back(completion_object(written.end, true));
    return dump(list);
  }
  const bool chat = request.surface == Surface::oai_chat;
  Json object = envelope(chat ? "chat.completion" : "text_completion");
  Json choices = Json::array();
  for (size_t i = 0; i < written_.size(); ++i) {
    const Written& written = written_[i];
    Json choice = {{"index", i}};
    if (chat) {
      choice["message"] = chat_message(written.answer);
      choice["logprobs"] = Json();
      if (request.logprobs) {
        choice["logprobs"] = {{"content", probabilities(written.end.probabilities)}};
      }
    } else {
      choice["text"] = written.text;
      choice["logprobs"] =
          request.logprobs ? legacy_logprobs(written.end.probabilities, 0) : Json();
    }
    choice["finish_reason"] = finish_reason(written.end);
    // The figures are those of one choice; with several, each has its own.
    if (written_.size() > 1) finish_choice(choice, written.end);
    choices.push_back(std::move(choice));
  }
  object["choices"] = std::move(choices);
  object["usage"] = usage();
  if (written_.size() == 1) finish_choice(object, written_[0].end);
  return dump(object);
}

}  // namespace lockstep::serve
