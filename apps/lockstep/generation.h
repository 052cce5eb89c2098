// What `run` needs to let a model write: the sampling and draft flags, and one answer.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli.h"
#include "decode/session.h"
#include "sample/sampler.h"
#include "text/tokenizer.h"

namespace lockstep::app {

struct SamplingOptions {
  std::optional<double> temperature, top_p, min_p, repeat_penalty, presence_penalty,
      frequency_penalty;
  std::optional<int64_t> top_k, repeat_last_n, seed;
  std::vector<std::string> logit_bias;
  std::optional<std::string> samplers;
  bool ignore_eos = false;

  void bind(Flags& flags);
  // Draws a seed where none is given. Throws Error(bad_use).
  sample::Parameters make(const text::Tokenizer& tokenizer) const;
};

struct DraftOptions {
  std::optional<Given> model, types;
  std::optional<int64_t> n_max, n_min;  // n_max: none is auto
  std::optional<double> p_min;

  void bind(Flags& flags);
  // Null for plain decoding.
  std::shared_ptr<draft::Source> open(const model::Model& target, const text::Tokenizer& tokenizer,
                                      std::shared_ptr<kernels::Backend> backend) const;
  // What makes any number of such sources, over one draft model; each as open() gives it. With a
  // pool, which must be the same every time, the draft model's KV pages come from there, beginnings
  // are shared, and of a history so many rows (chunk) are read at once.
  std::function<std::shared_ptr<draft::Source>(std::shared_ptr<state::PagePool>)> open_each(
      const model::Model& target, const text::Tokenizer& tokenizer,
      std::shared_ptr<kernels::Backend> backend, int64_t chunk) const;
  decode::DepthPolicy depth() const;
};

struct Answer {
  std::string text;          // as printed: whole characters, cut before a stop string
  std::vector<int32_t> ids;  // generated, an end token and those a stop string cut included
  decode::Finish finish = decode::Finish::none;
  std::string stop;                 // the stop string that ended it, "" if none did
  std::string finish_name() const;  // as decode::finish_name; "stop" at a stop string too
};

struct AnswerOptions {
  std::vector<std::string> stops;
  bool special = false;                           // print special tokens too
  std::string heading;                            // printed before, once the prompt is accepted
  std::function<void(std::string_view)> print;    // text as it comes
  const std::atomic<int>* interrupted = nullptr;  // not 0: end here, as Interrupts::flag()
};

// Lets the session go on from `history` to its end.
Answer answer(decode::Session& session, const text::Tokenizer& tokenizer,
              const std::vector<int32_t>& history, const AnswerOptions& options);

// The figures of the session's last generation, on standard error.
void print_closing_line(const decode::Session& session);

}  // namespace lockstep::app
