#include "serve/chat_output.h"

#include <algorithm>
#include <utility>

namespace lockstep::serve {
namespace {

constexpr std::string_view kThink = "<think>", kThought = "</think>";
constexpr std::string_view kHermes = "<tool_call>", kHermesEnd = "</tool_call>";
constexpr std::string_view kPython = "<|python_tag|>";
constexpr std::string_view kMistral = "[TOOL_CALLS]", kArguments = "[ARGS]", kCallId = "[CALL_ID]";

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}
bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

std::string_view without_space(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return text;
}

}  // namespace

ChatOutput::ChatOutput(ChatSyntax syntax, bool whole_calls, std::function<std::string(int)> make_id)
    : syntax_(std::move(syntax)),
      whole_calls_(whole_calls),
      make_id_(std::move(make_id)),
      may_think_(syntax_.thoughts) {
  if (syntax_.thoughts && syntax_.begins_in_thought) {
    state_ = State::thought;
    drop_space_ = true;
  }
}

ChatDelta ChatOutput::push(std::string_view text) {
  for (const char c : text) byte(c);
  return std::exchange(delta_, {});
}

bool ChatOutput::may_call() const {
  return syntax_.calls != CallSyntax::none && (syntax_.parallel || calls_ == 0);
}

// Whether text is the mark of a call, or may become it.
ChatOutput::Match ChatOutput::match(std::string_view text, std::string_view* mark) const {
  if (!may_call() || text.empty()) return Match::none;
  const std::string_view of = syntax_.calls == CallSyntax::hermes    ? kHermes
                              : syntax_.calls == CallSyntax::mistral ? kMistral
                                                                     : kPython;
  if (mark != nullptr) *mark = of;
  return text == of ? Match::whole : of.starts_with(text) ? Match::begun : Match::none;
}

void ChatOutput::byte(char c) {
  switch (state_) {
    case State::start:
      return start_byte(c);
    case State::thought:
      return thought_byte(c);
    case State::content:
      return content_byte(c);
    case State::gap:
      return gap_byte(c);
    case State::name:
      return name_byte(c);
    case State::call:
      return call_byte(c);
    case State::after_call:
      return after_call_byte(c);
  }
}

void ChatOutput::start_byte(char c) {
  if (drop_space_ && held_.empty() && is_space(c)) return;
  held_ += c;
  const std::string_view text = without_space(held_);
  if (text.empty()) return;
  if (may_think_) {
    if (text == kThink) {
      held_.clear();
      may_think_ = false;
      drop_space_ = true;
      state_ = State::thought;
      return;
    }
    if (kThink.starts_with(text)) return;
  }
  if (syntax_.calls == CallSyntax::llama3 && may_call() && text == "{") {
    raw_ = std::exchange(held_, {});
    raw_.pop_back();
    begin_object();
    return call_byte(c);
  }
  refeed_held();
}

void ChatOutput::refeed_held() {
  state_ = State::content;
  for (const char c : std::exchange(held_, {})) byte(c);
}

void ChatOutput::thought_byte(char c) {
  if (drop_space_ && held_.empty() && is_space(c)) return;
  held_ += c;
  std::string_view text = without_space(held_);
  // Models whose prompt begins the thought sometimes begin it once more.
  if (drop_space_ && kThink.starts_with(text)) {
    if (text == kThink) held_.clear();
    return;
  }
  if (text.empty() || (kThought.starts_with(text) && text != kThought)) return;
  if (text == kThought) {
    held_.clear();
    drop_space_ = true;
    may_think_ = false;
    state_ = State::start;
    return;
  }
  drop_space_ = false;
  // Up to the first byte that cannot belong to the mark; the rest may begin anew.
  const size_t sure = held_.size() - text.size() + 1;
  delta_.reasoning += held_.substr(0, sure);
  const std::string rest = held_.substr(sure);
  held_.clear();
  for (const char again : rest) thought_byte(again);
}

void ChatOutput::content_byte(char c) {
  if (syntax_.calls == CallSyntax::none) {
    delta_.content += c;
    return;
  }
  held_ += c;
  const std::string_view text = without_space(held_);
  if (text.empty()) return;
  std::string_view mark;
  switch (match(text, &mark)) {
    case Match::begun:
      return;
    case Match::whole:
      raw_ = std::exchange(held_, {});
      name_.clear();
      named_before_ = array_ = false;
      state_ = State::gap;
      return;
    case Match::none:
      break;
  }
  const size_t sure = held_.size() - text.size() + 1;
  delta_.content += held_.substr(0, sure);
  const std::string rest = held_.substr(sure);
  held_.clear();
  for (const char again : rest) content_byte(again);
}

// Between a mark, or a list's comma, and the call's object.
void ChatOutput::gap_byte(char c) {
  raw_ += c;
  if (is_space(c)) return;
  if (c == '{') {
    raw_.pop_back();
    begin_object();
    return call_byte(c);
  }
  if (syntax_.calls == CallSyntax::mistral && !array_) {
    if (c == '[') {
      array_ = true;
      return;
    }
    if (is_name(c)) {
      state_ = State::name;
      name_ = c;
      return;
    }
  }
  raw_.pop_back();
  break_call();
  byte(c);
}

void ChatOutput::name_byte(char c) {
  raw_ += c;
  if (held_.empty() && is_name(c)) {
    name_ += c;
    return;
  }
  if (c == '{' && (held_.empty() || held_.ends_with(kArguments))) {
    raw_.pop_back();
    held_.clear();
    named_before_ = true;
    begin_object();
    return call_byte(c);
  }
  if (held_.empty() ? c == '[' : true) {
    // [ARGS], or [CALL_ID]id[ARGS].
    held_ += c;
    const std::string_view text = held_;
    const bool id = text.starts_with(kCallId);
    const std::string_view rest = id ? text.substr(std::min(text.find('[', 1), text.size())) : text;
    if (rest.empty() || kArguments.starts_with(rest) || kCallId.starts_with(rest)) return;
    if (is_space(c) && rest.starts_with(kArguments)) {
      held_.pop_back();
      return;
    }
  }
  raw_.pop_back();
  held_.clear();
  break_call();
  byte(c);
}

void ChatOutput::begin_object() {
  reader_ = {};
  telling_ = false;
  told_ = 0;
  state_ = State::call;
  if (!named_before_) return;
  for (const char c : "{\"name\":\"" + name_ + "\",\"arguments\":") reader_.feed(c);
}

void ChatOutput::call_byte(char c) {
  const bool complete = reader_.usable() && reader_.begun();
  CallReader::State state = reader_.feed(c);
  if (state == CallReader::State::bad) {
    // Small models forget the last brace.
    if (complete) {
      end_call();
    } else {
      broken_ |= telling_;
      break_call();
    }
    return byte(c);
  }
  raw_ += c;
  tell_call();
  if (named_before_ && reader_.usable()) state = CallReader::State::done;
  if (state == CallReader::State::done) end_call();
}

void ChatOutput::tell_call() {
  // A JSON object is no call where only its name could tell one, and is none.
  const bool known = syntax_.calls != CallSyntax::llama3 || syntax_.tools.contains(reader_.name());
  if (whole_calls_ || !reader_.begun() || !known) return;
  const std::string& arguments = reader_.arguments();
  if (telling_ && arguments.size() == told_) return;
  CallDelta* delta = nullptr;
  if (!delta_.calls.empty() && delta_.calls.back().index == calls_) {
    delta = &delta_.calls.back();
  } else {
    delta_.calls.push_back({.index = calls_, .id = {}, .name = {}, .arguments = {}});
    delta = &delta_.calls.back();
  }
  if (!telling_) {
    delta->id = make_id_(calls_);
    delta->name = reader_.name();
  }
  delta->arguments += arguments.substr(told_);
  telling_ = true;
  told_ = arguments.size();
  raw_.clear();
}

// The call is whole.
void ChatOutput::end_call() {
  const bool known = syntax_.calls != CallSyntax::llama3 || syntax_.tools.contains(reader_.name());
  if (!known) return break_call();
  if (!telling_) {
    delta_.calls.push_back({.index = calls_,
                            .id = make_id_(calls_),
                            .name = reader_.name(),
                            .arguments = reader_.arguments()});
  }
  ++calls_;
  raw_.clear();
  held_.clear();
  telling_ = false;
  state_ = State::after_call;
}

void ChatOutput::break_call() {
  delta_.content += std::exchange(raw_, {});
  held_.clear();
  // What was told of it keeps its number.
  if (telling_) ++calls_;
  telling_ = false;
  state_ = State::content;
}

// What closes a call, or leads to the next one; else content.
void ChatOutput::after_call_byte(char c) {
  held_ += c;
  const std::string_view text = without_space(held_);
  if (text.empty()) return;
  const auto next = [&] {
    raw_ = std::exchange(held_, {});
    state_ = State::gap;
  };
  switch (syntax_.calls) {
    case CallSyntax::hermes:
      if (text == kHermesEnd) {
        held_.clear();
        state_ = State::content;
        return;
      }
      if (kHermesEnd.starts_with(text)) return;
      if (text == "{" && may_call()) {
        raw_ = std::exchange(held_, {});
        raw_.pop_back();
        begin_object();
        return call_byte(c);
      }
      break;
    case CallSyntax::llama3:
      if (text == ";" && may_call()) return next();
      break;
    case CallSyntax::mistral:
      if (!array_) break;
      if (text == ",") {
        if (may_call()) return next();
        break;
      }
      if (text == "]") {
        held_.clear();
        array_ = false;
        state_ = State::content;
        return;
      }
      break;
    case CallSyntax::none:
      break;
  }
  refeed_held();
}

ChatDelta ChatOutput::finish() {
  switch (state_) {
    case State::start:
      if (!drop_space_ || !without_space(held_).empty()) delta_.content += held_;
      break;
    case State::thought:
      // Space that nothing follows is no thought.
      if (!without_space(held_).empty()) delta_.reasoning += held_;
      break;
    case State::content:
    case State::after_call:
      if (calls_ == 0 || !without_space(held_).empty()) delta_.content += held_;
      break;
    case State::gap:
    case State::name:
      delta_.content += raw_;
      break;
    case State::call:
      if (reader_.usable() && reader_.begun()) {
        end_call();
      } else {
        broken_ |= telling_;
        delta_.content += telling_ ? std::string() : raw_;
      }
      break;
  }
  held_.clear();
  raw_.clear();
  state_ = State::content;
  return std::exchange(delta_, {});
}

}  // namespace lockstep::serve
