#include "serve/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

#include "base/error.h"
#include "serve/fields.h"

namespace lockstep::serve {
namespace {

constexpr double kFloatMax = std::numeric_limits<float>::max();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kMaxId = std::numeric_limits<int32_t>::max();

// Fields that clients send and that are accepted only where they would do nothing. `neutral` says
// whether a value does nothing; `instead` completes "not supported; ".
struct Unsupported {
  const char* name;
  bool (*neutral)(const Json& value);
  const char* instead;
};

bool is(const Json& value, double number) {
  return value.is_number() && value.get<double>() == number;
}
bool not_positive(const Json& value) {
  return value.is_number() && value.get<double>() <= 0;
}
bool negative(const Json& value) {
  return value.is_number() && value.get<double>() < 0;
}
bool zero(const Json& value) {
  return is(value, 0);
}
bool one(const Json& value) {
  return is(value, 1);
}
bool at_least_one(const Json& value) {
  return value.is_number() && value.get<double>() >= 1;
}
bool off(const Json& value) {
  return value == false;
}
bool empty(const Json& value) {
  return (value.is_string() && value.get_ref<const std::string&>().empty()) ||
         ((value.is_array() || value.is_object()) && value.empty());
}
bool no_word(const Json&) {
  return false;
}

constexpr const char* kLawSamplers =
    "the samplers are penalties, top_k, top_p, min_p and temperature";
constexpr const char* kNoConstraint = "constrained output is not there yet";
constexpr const char* kNoFunctions = "use tools";

constexpr Unsupported kEverywhere[] = {
    {"dynatemp_range", zero, "the temperature is fixed"},
    {"typical_p", at_least_one, kLawSamplers},
    {"typ_p", at_least_one, kLawSamplers},
    {"xtc_probability", not_positive, kLawSamplers},
    {"dry_multiplier", zero, kLawSamplers},
    {"mirostat", zero, kLawSamplers},
    {"top_n_sigma", not_positive, kLawSamplers},
    {"adaptive_target", negative, kLawSamplers},
    {"min_keep", not_positive, kLawSamplers},
    {"grammar", empty, kNoConstraint},
    {"grammar_lazy", off, kNoConstraint},
    {"grammar_triggers", empty, kNoConstraint},
    {"json_schema", no_word, kNoConstraint},
    {"t_max_predict_ms", not_positive, "use max_tokens to bound the answer"},
    {"n_indent", zero, "it is for infill"},
    {"post_sampling_probs", off, "probabilities are those of the model's own row"},
    {"lora", empty, "adapters are not applied here"},
    {"response_fields", empty, "the whole object is returned"},
};
constexpr Unsupported kCompletion[] = {
    {"image_data", empty, "only text is read here"},
    {"multimodal_data", empty, "only text is read here"},
};
constexpr Unsupported kOaiCompletion[] = {
    {"suffix", empty, "infill is not there"},
    {"echo", off, "the prompt is not repeated"},
    {"best_of", one, "every choice is returned; use n"},
};
constexpr Unsupported kChat[] = {
    {"functions", empty, kNoFunctions},
    {"function_call", [](const Json& v) { return v == "none" || v == "auto"; }, kNoFunctions},
    {"tool_choice", [](const Json& v) { return v == "none" || v == "auto"; },
     "whether a tool is called is the model's choice here; use \"auto\" or \"none\""},
    {"modalities", [](const Json& v) { return v == Json::array({"text"}); },
     "only text is written here"},
    {"audio", no_word, "only text is written here"},
    {"prediction", no_word, "drafts come from the server's own sources"},
    {"reasoning_effort", no_word, "set the template's variables with chat_template_kwargs"},
    {"reasoning_format",
     [](const Json& v) { return v == "none" || v == "auto" || v == "deepseek"; },
     "use \"none\", \"deepseek\" or \"auto\""},
    {"web_search_options", no_word, "nothing is searched"},
    {"continue_final_message", off, "use /completion with the text of /apply-template"},
};
constexpr Unsupported kResponseFormat = {
    "response_format",
    [](const Json& v) { return v.is_object() && v.contains("type") && v["type"] == "text"; },
    kNoConstraint};

void refuse_unsupported(const Fields& fields, std::span<const Unsupported> list) {
  for (const Unsupported& field : list) {
    const Json* value = fields.find(field.name);
    if (value != nullptr && !field.neutral(*value)) {
      fields.refuse(field.name,
                    fmt::format("{} is not supported; {}", quote(*value), field.instead));
    }
  }
}

void set(float& target, const std::optional<double>& value) {
  if (value) target = static_cast<float>(*value);
}

std::string element(std::string_view list, size_t i) {
  return fmt::format("{}[{}]", list, i);
}

// llama-server's names of stages, those that are not in the law among them, with the letters it has
// for them.
struct StageName {
  std::string_view name;
  char letter;
  std::optional<sample::Stage> stage;  // none: accepted, since its parameters are neutral
};
constexpr StageName kStages[] = {
    {"penalties", 'e', sample::Stage::penalties},
    {"dry", 'd', std::nullopt},
    {"top_n_sigma", 's', std::nullopt},
    {"top_k", 'k', sample::Stage::top_k},
    {"typ_p", 'y', std::nullopt},
    {"typical_p", 'y', std::nullopt},
    {"top_p", 'p', sample::Stage::top_p},
    {"min_p", 'm', sample::Stage::min_p},
    {"xtc", 'x', std::nullopt},
    {"temperature", 't', sample::Stage::temperature},
    {"adaptive_p", 'a', std::nullopt},
};

std::vector<sample::Stage> parse_samplers(const Json& value) {
  std::vector<sample::Stage> stages;
  const auto add = [&](const StageName& known, const std::string& where) {
    if (!known.stage) return;
    if (std::find(stages.begin(), stages.end(), *known.stage) != stages.end()) {
      refuse_field(where, fmt::format("{} stands twice", known.name));
    }
    stages.push_back(*known.stage);
  };
  if (value.is_string()) {
    for (const char letter : value.get_ref<const std::string&>()) {
      const auto known = std::find_if(std::begin(kStages), std::end(kStages),
                                      [&](const StageName& s) { return s.letter == letter; });
      if (known == std::end(kStages)) {
        refuse_field("samplers",
                     fmt::format("\"{}\" is no letter of a sampler", shorten({&letter, 1})));
      }
      add(*known, "samplers");
    }
    return stages;
  }
  if (!value.is_array()) {
    refuse_field("samplers", fmt::format("{} is not a list of names", quote(value)));
  }
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string where = element("samplers", i);
    if (!value[i].is_string()) refuse_field(where, "not a name");
    const auto& name = value[i].get_ref<const std::string&>();
    const auto known = std::find_if(std::begin(kStages), std::end(kStages),
                                    [&](const StageName& s) { return s.name == name; });
    if (known == std::end(kStages)) {
      refuse_field(where, fmt::format("{} is not supported; {}", quote(value[i]), kLawSamplers));
    }
    add(*known, where);
  }
  return stages;
}

float parse_bias(const Json& value, const std::string& where) {
  if (value == false) return -kInfinity;
  if (!value.is_number()) refuse_field(where, fmt::format("{} is not a number", quote(value)));
  const double bias = value.get<double>();
  if (!(std::fabs(bias) <= kFloatMax)) refuse_field(where, "out of range");
  return static_cast<float>(bias);
}

std::optional<int32_t> parse_id(std::string_view text) {
  int32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return id;
}

int32_t checked_id(const Json& value, const std::string& where) {
  if (!value.is_number_integer() && !value.is_number_unsigned()) {
    refuse_field(where, fmt::format("{} is not a token id", quote(value)));
  }
  const bool large =
      value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMaxId);
  if (large || value.get<int64_t>() < 0 || value.get<int64_t>() > kMaxId) {
    refuse_field(where, fmt::format("{} is not a token id", quote(value)));
  }
  return value.get<int32_t>();
}

// OpenAI's {"15043": -1}, or llama-server's [[15043, -1], ["text", false]].
void parse_logit_bias(const Json& value, Request& request) {
  const auto add_text = [&](const std::string& key, float bias) {
    if (const auto id = parse_id(key)) {
      request.sampling.logit_bias.emplace_back(*id, bias);
    } else {
      request.text_bias.emplace_back(key, bias);
    }
  };
  if (value.is_object()) {
    for (const auto& [key, bias] : value.items()) {
      add_text(key, parse_bias(bias, fmt::format("logit_bias[\"{}\"]", shorten(key))));
    }
    return;
  }
  if (!value.is_array()) {
    refuse_field("logit_bias", fmt::format("{} is neither an object nor a list", quote(value)));
  }
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string where = element("logit_bias", i);
    const Json& pair = value[i];
    if (!pair.is_array() || pair.size() != 2) {
      refuse_field(where, "not a pair of a token and a bias");
    }
    const float bias = parse_bias(pair[1], where);
    if (pair[0].is_string()) {
      request.text_bias.emplace_back(pair[0].get<std::string>(), bias);
    } else {
      request.sampling.logit_bias.emplace_back(checked_id(pair[0], where), bias);
    }
  }
}

void parse_sampling(const Fields& fields, Request& request) {
  sample::Parameters& p = request.sampling;
  set(p.temperature, fields.number("temperature", -kFloatMax, kFloatMax));
  if (const auto v = fields.integer("top_k", INT32_MIN, INT32_MAX)) {
    p.top_k = static_cast<int32_t>(*v);
  }
  set(p.top_p, fields.number("top_p", -kFloatMax, kFloatMax));
  set(p.min_p, fields.number("min_p", -kFloatMax, kFloatMax));
  if (const auto v = fields.integer("repeat_last_n", -1, INT32_MAX)) {
    p.repeat_last_n = static_cast<int32_t>(*v);
  }
  if (const auto v = fields.number("repeat_penalty", 0, kFloatMax)) {
    if (static_cast<float>(*v) <= 0)
      fields.refuse("repeat_penalty", "it must be more than 0 (1: off)");
    p.repeat_penalty = static_cast<float>(*v);
  }
  set(p.frequency_penalty, fields.number("frequency_penalty", -kFloatMax, kFloatMax));
  set(p.presence_penalty, fields.number("presence_penalty", -kFloatMax, kFloatMax));
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX)) {
    request.seed_given = *seed >= 0 && *seed != kRandomSeed;
    if (request.seed_given) p.seed = static_cast<uint64_t>(*seed);
  }
  if (const Json* samplers = fields.find("samplers")) p.stages = parse_samplers(*samplers);
  if (const Json* bias = fields.find("logit_bias")) parse_logit_bias(*bias, request);
  request.ignore_eos = fields.boolean("ignore_eos").value_or(false);
}

void parse_limits(const Fields& fields, Request& request) {
  // The names mean the same; where several are there, the newest counts.
  for (const char* name : {"n_predict", "max_tokens", "max_completion_tokens"}) {
    // llama-server takes every negative number for no limit.
    if (const auto v = fields.integer(name, INT64_MIN, INT64_MAX)) {
      request.max_tokens = std::max<int64_t>(-1, *v);
    }
  }
  for (const char* name : {"n_cmpl", "n"}) {
    if (const auto v = fields.integer(name, 1, kMaxSequences)) request.n = *v;
  }
}

void parse_stops(const Fields& fields, Request& request) {
  const Json* stop = fields.find("stop");
  if (stop == nullptr) return;
  const auto add = [&](const Json& value, const std::string& where) {
    if (!value.is_string()) refuse_field(where, fmt::format("{} is not a string", quote(value)));
    // llama-server drops empty ones, and clients send them.
    if (!value.get_ref<const std::string&>().empty()) {
      request.stops.push_back(value.get<std::string>());
    }
  };
  if (!stop->is_array()) return add(*stop, "stop");
  if (stop->size() > kMaxStops) {
    fields.refuse("stop", fmt::format("{} strings; give at most {}", stop->size(), kMaxStops));
  }
  for (size_t i = 0; i < stop->size(); ++i) add((*stop)[i], element("stop", i));
}

void parse_output(const Fields& fields, Request& request) {
  request.stream = fields.boolean("stream").value_or(false);
  if (const Json* options = fields.find("stream_options")) {
    if (!options->is_object()) fields.refuse("stream_options", "not an object");
    request.include_usage =
        Fields(*options, "stream_options.").boolean("include_usage").value_or(false);
  }
  request.cache_prompt = fields.boolean("cache_prompt").value_or(true);
  request.id_slot = fields.integer("id_slot", -1, INT32_MAX).value_or(-1);
  request.return_tokens = fields.boolean("return_tokens").value_or(false);
  request.timings_per_token = fields.boolean("timings_per_token").value_or(false);
  request.return_progress = fields.boolean("return_progress").value_or(false);
  fields.text("model");  // there is one, whatever it is called
  request.token_origins = fields.boolean("token_origins").value_or(false);

  const auto list = [&](const char* name) {
    const auto top = fields.integer(name, 0, kMaxTop);
    if (top) request.top = static_cast<int>(*top);
    return top;
  };
  switch (request.surface) {
    case Surface::completion:
      request.logprobs = list("n_probs").value_or(0) > 0;
      break;
    case Surface::oai_completion:
      // llama-server's name is known here too; 0 of OpenAI's asks for each token's own.
      request.logprobs = list("n_probs").value_or(0) > 0;
      if (list("logprobs")) request.logprobs = true;
      break;
    case Surface::oai_chat: {
      request.logprobs = fields.boolean("logprobs").value_or(false);
      const bool top = list("top_logprobs").value_or(0) > 0;
      if (top && !request.logprobs) {
        fields.refuse("top_logprobs", "it needs logprobs to be true");
      }
      break;
    }
  }
}

// llama-server's object around a prompt's text, which may bring images where there are any.
std::string parse_prompt_object(const Json& value, const std::string& where) {
  const Fields fields(value, where + ".");
  if (const Json* data = fields.find("multimodal_data"); data != nullptr && !empty(*data)) {
    fields.refuse("multimodal_data", "only text is read here");
  }
  const auto text = fields.text("prompt_string");
  if (!text) fields.refuse("prompt_string", "it is missing");
  return *text;
}

Prompt parse_prompt(const Json& value, const std::string& where) {
  if (value.is_string()) return {value.get<std::string>()};
  if (value.is_object()) return {parse_prompt_object(value, where)};
  if (!value.is_array()) {
    refuse_field(where, fmt::format("{} is neither text nor a list of token ids", quote(value)));
  }
  Prompt prompt;
  for (size_t i = 0; i < value.size(); ++i) {
    if (value[i].is_string()) {
      prompt.emplace_back(value[i].get<std::string>());
    } else {
      prompt.emplace_back(checked_id(value[i], element(where, i)));
    }
  }
  return prompt;
}

// The text of a message: a string, or parts of type text.
Json message_content(const Json& content, const std::string& where) {
  if (content.is_string() || content.is_null()) return content;
  if (!content.is_array()) {
    refuse_field(where, fmt::format("{} is neither text nor a list of parts", quote(content)));
  }
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string at = element(where, i);
    if (!content[i].is_object()) refuse_field(at, "not an object");
    const Fields part(content[i], at + ".");
    const std::string type = part.text("type").value_or("");
    if (type != "text") {
      part.refuse("type",
                  fmt::format("\"{}\" is not supported; only text is read here", shorten(type)));
    }
    const auto piece = part.text("text");
    if (!piece) part.refuse("text", "it is missing");
    text += *piece;
  }
  return text;
}

// The calls of an assistant's message. Templates are written for arguments that are objects, and
// clients send the text that they were given.
void parse_calls(Json& calls, const std::string& where) {
  if (!calls.is_array()) refuse_field(where, fmt::format("{} is not a list", quote(calls)));
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string at = element(where, i);
    if (!calls[i].is_object()) refuse_field(at, "not an object");
    const Fields call(calls[i], at + ".");
    const Json* function = call.find("function");
    if (function == nullptr) call.refuse("function", "it is missing");
    if (!function->is_object()) call.refuse("function", "not an object");
    const Fields called(*function, at + ".function.");
    if (!called.text("name")) called.refuse("name", "it is missing");
    const Json* arguments = called.find("arguments");
    if (arguments == nullptr || arguments->is_object()) continue;
    const auto text = called.text("arguments");
    try {
      calls[i]["function"]["arguments"] = parse_body(*text);
    } catch (const RequestError&) {
      // A model's own mistake, which the next answer is to mend: the template gets the text.
    }
  }
}

Json parse_tools(const Fields& fields) {
  Json tools = Json::array();
  const Json* given = fields.find("tools");
  if (given == nullptr) return tools;
  if (!given->is_array()) fields.refuse("tools", fmt::format("{} is not a list", quote(*given)));
  if (given->size() > kMaxTools) {
    fields.refuse("tools", fmt::format("{} tools; give at most {}", given->size(), kMaxTools));
  }
  for (size_t i = 0; i < given->size(); ++i) {
    const std::string at = element("tools", i);
    if (!(*given)[i].is_object()) refuse_field(at, "not an object");
    const Fields tool((*given)[i], at + ".");
    if (const std::string type = tool.text("type").value_or("function"); type != "function") {
      tool.refuse("type", fmt::format("\"{}\" is not supported; only functions are called here",
                                      shorten(type)));
    }
    const Json* function = tool.find("function");
    if (function == nullptr) tool.refuse("function", "it is missing");
    if (!function->is_object()) tool.refuse("function", "not an object");
    const Fields of(*function, at + ".function.");
    if (of.text("name").value_or("").empty()) of.refuse("name", "it is missing");
    of.text("description");
    if (const Json* parameters = of.find("parameters"); parameters && !parameters->is_object()) {
      of.refuse("parameters", "not an object");
    }
    tools.push_back((*given)[i]);
  }
  return tools;
}

}  // namespace

Prompt parse_ids(const Json& value, const std::string& name) {
  if (!value.is_array()) {
    refuse_field(name, fmt::format("{} is not a list of token ids", quote(value)));
  }
  Prompt ids;
  for (size_t i = 0; i < value.size(); ++i) {
    ids.emplace_back(checked_id(value[i], element(name, i)));
  }
  return ids;
}

std::vector<Prompt> parse_prompts(const Json& value, const std::string& name) {
  // A list with no number in it, but lists or texts, is a list of prompts.
  const bool several =
      value.is_array() && !value.empty() &&
      std::none_of(value.begin(), value.end(), [](const Json& v) { return v.is_number(); });
  if (!several) return {parse_prompt(value, name)};
  if (static_cast<int64_t>(value.size()) > kMaxSequences) {
    refuse_field(name, fmt::format("{} prompts; give at most {}", value.size(), kMaxSequences));
  }
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < value.size(); ++i) {
    prompts.push_back(parse_prompt(value[i], element(name, i)));
  }
  return prompts;
}

Json parse_messages(const Json& body) {
  const Fields fields(body);
  const Json* given = fields.find("messages");
  if (given == nullptr) fields.refuse("messages", "it is missing; give a list of messages");
  if (!given->is_array()) {
    fields.refuse("messages", fmt::format("{} is not a list", quote(*given)));
  }
  if (given->empty()) fields.refuse("messages", "it is empty; give at least one message");
  Json messages = Json::array();
  for (size_t i = 0; i < given->size(); ++i) {
    const std::string where = element("messages", i);
    if (!(*given)[i].is_object()) refuse_field(where, "not an object");
    Json message = (*given)[i];
    const Fields of(message, where + ".");
    const auto role = of.text("role");
    if (!role) of.refuse("role", "it is missing");
    if (role->empty()) of.refuse("role", "it is empty");
    const bool calls = of.has("tool_calls") && !empty(message["tool_calls"]);
    if (calls) parse_calls(message["tool_calls"], where + ".tool_calls");
    if (!of.has("content")) {
      if (!calls) of.refuse("content", "it is missing");
      // Templates add it to other text.
      message["content"] = "";
    }
    message["content"] = message_content(message["content"], where + ".content");
    messages.push_back(std::move(message));
  }
  return messages;
}

Request parse_request(Surface surface, std::string_view body, const RequestDefaults& defaults) {
  const Json json = parse_body(body);
  const Fields fields(json);
  Request request;
  request.surface = surface;
  request.sampling = defaults.sampling;
  request.seed_given = defaults.seed_given;
  request.max_tokens = defaults.max_tokens;
  request.reasoning = defaults.reasoning;

  refuse_unsupported(fields, kEverywhere);
  if (surface == Surface::oai_chat) {
    refuse_unsupported(fields, kChat);
  } else {
    refuse_unsupported(fields, kCompletion);
  }
  if (surface == Surface::oai_completion) refuse_unsupported(fields, kOaiCompletion);
  refuse_unsupported(fields, {&kResponseFormat, 1});

  parse_sampling(fields, request);
  parse_limits(fields, request);
  parse_stops(fields, request);
  parse_output(fields, request);

  if (surface == Surface::oai_chat) {
    request.messages = parse_messages(json);
    request.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
    request.tools = parse_tools(fields);
    if (fields.text("tool_choice").value_or("auto") == "none") request.tools.clear();
    request.parallel_tool_calls = fields.boolean("parallel_tool_calls").value_or(true);
    if (const auto format = fields.text("reasoning_format")) {
      request.reasoning = *format == "none" ? ReasoningFormat::none : ReasoningFormat::apart;
    }
    if (const Json* extra = fields.find("chat_template_kwargs")) {
      if (!extra->is_object()) fields.refuse("chat_template_kwargs", "not an object");
      request.template_variables = *extra;
    }
  } else {
    const Json* prompt = fields.find("prompt");
    if (prompt == nullptr)
      fields.refuse("prompt", "it is missing; give text or a list of token ids");
    request.prompts = parse_prompts(*prompt, "prompt");
  }
  const auto prompts = std::max<int64_t>(1, std::ssize(request.prompts));
  if (prompts * request.n > kMaxSequences) {
    fields.refuse("n", fmt::format("{} prompts with {} choices each; give at most {} together",
                                   prompts, request.n, kMaxSequences));
  }
  return request;
}

}  // namespace lockstep::serve
