// From a body of JSON to what is to be generated. Nothing here needs a model: texts become ids in
// prepare.h. docs/server.md lists the fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sample/sampler.h"
#include "serve/error.h"

namespace lockstep::serve {

// What becomes of a model's thoughts: left in the content, or apart as reasoning_content.
enum class ReasoningFormat : uint8_t { none, apart };

enum class Surface : uint8_t {
  completion,      // llama-server's /completion
  oai_completion,  // /v1/completions
  oai_chat,        // /v1/chat/completions
};

// Text, or one token id, of a prompt.
using PromptPart = std::variant<std::string, int32_t>;
using Prompt = std::vector<PromptPart>;

inline constexpr int64_t kMaxSequences = 64;  // prompts times n, of one request
inline constexpr int64_t kMaxTop = 256;       // probabilities of a token
inline constexpr size_t kMaxStops = 256;
inline constexpr size_t kMaxTools = 1024;

inline constexpr int64_t kRandomSeed = 0xFFFFFFFF;  // llama.cpp's "draw one"

struct Request {
  Surface surface = Surface::completion;
  std::vector<Prompt> prompts;               // of a chat: none, the messages make it
  Json messages = Json::array();             // of a chat
  Json template_variables = Json::object();  // further variables of the chat template
  bool add_generation_prompt = true;
  Json tools = Json::array();       // of a chat, those that may be called
  bool parallel_tool_calls = true;  // false: one call at most is read from an answer
  ReasoningFormat reasoning = ReasoningFormat::apart;

  int64_t n = 1;
  int64_t max_tokens = -1;  // -1: to the context's end
  sample::Parameters sampling;
  bool seed_given = false;  // else one is to be drawn
  // Biases of texts (llama-server): for each of a text's tokens.
  std::vector<std::pair<std::string, float>> text_bias;
  bool ignore_eos = false;
  std::vector<std::string> stops;

  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  int top = 0;  // probabilities listed beside each token's own
  bool cache_prompt = true;
  int64_t id_slot = -1;
  bool return_tokens = false;
  bool timings_per_token = false;
  bool return_progress = false;
  bool token_origins = false;  // tell of each token who proposed it
};

// What holds where a request says nothing.
struct RequestDefaults {
  sample::Parameters sampling;
  bool seed_given = false;
  int64_t max_tokens = -1;
  ReasoningFormat reasoning = ReasoningFormat::apart;
};

// Throws RequestError(400) naming the field: wrong types, values out of range, and every known
// field that would act and is not supported. Unknown fields are ignored.
Request parse_request(Surface surface, std::string_view body, const RequestDefaults& defaults);

// Messages as the chat template gets them: checked, and content that is a list of text parts
// joined, and arguments of calls that are the text of a JSON object that object.
Json parse_messages(const Json& body);

// A list of token ids.
Prompt parse_ids(const Json& value, const std::string& name);

// The body's prompt: a text, a list of ids, a list of both, or a list of such.
std::vector<Prompt> parse_prompts(const Json& value, const std::string& name);

}  // namespace lockstep::serve
