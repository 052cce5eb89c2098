// From events to what the client reads: one JSON object, or a stream of them (server-sent events).
// docs/server.md lists the fields.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "serve/chat_output.h"
#include "serve/scheduler.h"

namespace lockstep::serve {

// The figures under llama-server's names.
Json timings_json(const Timings& timings);
// A request's parameters as they are in force, under llama-server's names.
Json settings_json(const Request& request, const sample::Parameters& sampling, int64_t context);

// What a reply is made from, beside the events.
struct ReplyContext {
  std::string model;        // that the server calls its model
  std::string fingerprint;  // name and version
  int64_t created = 0;      // seconds since 1970
  int64_t context = 0;      // of one request
};

class Reply {
 public:
  Reply(std::shared_ptr<const Job> job, text::Tokenizer tokenizer, ReplyContext context);

  // Of a job that streams: the bytes that tell of the event; "" for nothing.
  std::string stream(const Event& event);
  // Of a job that does not: takes the event.
  void collect(const Event& event);
  // Whether every sequence has ended.
  bool complete() const { return ended_ == job_->sequences(); }
  // The first failure: of a job that does not stream, what it is answered with.
  const std::optional<ApiError>& failure() const { return failure_; }
  // The whole answer of a job that does not stream, once complete().
  std::string body() const;

 private:
  struct Written {  // of a sequence, so far
    std::string text;
    std::vector<int32_t> ids;
    int64_t generated = 0, cached = 0;
    size_t characters = 0;  // text_offset of OpenAI's logprobs
    bool begun = false;
    std::unique_ptr<ChatOutput> output;  // of a chat
    ChatDelta answer;                    // of a chat that does not stream, once it has ended
    Event end;
  };
  Json completion_object(const Event& event, bool last) const;
  Json chat_chunk(const Event& event, const ChatDelta& delta) const;
  Json chat_end(const Event& event) const;
  Json chat_message(const ChatDelta& answer) const;
  std::string stream_chat(const Event& event);
  Json text_chunk(const Event& event, size_t offset, bool last) const;
  Json envelope(const char* object) const;
  Json usage() const;
  Json probabilities(const std::vector<TokenProbability>& list) const;
  Json legacy_logprobs(const std::vector<TokenProbability>& list, size_t offset) const;
  void finish_choice(Json& object, const Event& event) const;
  void add_origins(Json& object, const Event& event) const;
  Json progress(Json object, const Event& event) const;
  const char* finish_reason(const Event& event) const;
  int64_t prompt_tokens() const;

  std::shared_ptr<const Job> job_;
  text::Tokenizer tokenizer_;
  ReplyContext context_;
  std::string id_;
  std::vector<Written> written_;
  int64_t ended_ = 0;
  std::optional<ApiError> failure_;
};

// "data: …\n\n"
std::string server_sent(const Json& object);
std::string dump(const Json& object);  // one line; bytes that are not UTF-8 are replaced

}  // namespace lockstep::serve
