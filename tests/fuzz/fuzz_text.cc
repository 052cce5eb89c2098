// Fuzzes the text room. Input: a byte that chooses a vocabulary, a byte of flags, then the text;
// or, for the last choice, a vocabulary and a text that are both made of the input.
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "synthetic_vocabulary.h"
#include "text/stop_strings.h"
#include "text/tokenizer.h"
#include "text/unicode.h"
#include "text/utf8_stream.h"

using namespace lockstep;
using namespace lockstep::text;

namespace {

uint64_t inputs = 0, past_pre_tokenizer = 0, vocabularies = 0;

void report() {
  std::fprintf(
      stderr,
      "fuzz_text: %llu inputs, %llu got past the pre-tokenizer, %llu vocabularies were accepted\n",
      static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(past_pre_tokenizer),
      static_cast<unsigned long long>(vocabularies));
  // A run that reached nothing must not look like one that found nothing. (A few single inputs are
  // a reproduction and no run.)
  if (inputs >= 1000 && past_pre_tokenizer < 1000) {
    std::fprintf(stderr, "fuzz_text: fewer than 1000 is no run\n");
    std::_Exit(1);
  }
}

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_text: %s\n", what);
  std::abort();
}

const std::vector<Tokenizer>& tokenizers() {
  static const std::vector<Tokenizer> all = [] {
    std::vector<Tokenizer> made;
    for (const char* pre : {"", "gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35"}) {
      made.emplace_back(SyntheticVocabulary::byte_bpe(pre).source());
    }
    made.emplace_back(SyntheticVocabulary::raw_bpe().source());
    made.emplace_back(SyntheticVocabulary::spm(false).source());
    made.emplace_back(SyntheticVocabulary::spm(true).source());
    return made;
  }();
  return all;
}
constexpr size_t kByteLevel = 6, kRawBpe = 6, kSpm = 7;  // indices; the first six are byte-level

std::string re_encoded(std::string_view text) {
  std::string out;
  for (const uint32_t c : lenient_code_points(text)) append_utf8(out, c);
  return out;
}

std::string without_space_marks(std::string text) {
  for (size_t at; (at = text.find("\xE2\x96\x81")) != std::string::npos;) text.replace(at, 3, " ");
  return text;
}

void encode_and_check(const Tokenizer& tokenizer, std::string_view text, uint8_t flags,
                      std::vector<int32_t>& ids) {
  const auto start = std::chrono::steady_clock::now();
  ids = tokenizer.encode(text, flags & 1, flags & 2);
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
  // With sanitizers and on a busy machine; a quadratic step would need far more for large inputs.
  check(time.count() < 2 + 20e-6 * static_cast<double>(text.size()), "encode took too long");
  for (const int32_t id : ids) check(id >= 0 && id < tokenizer.n_vocab(), "an id is out of range");
  past_pre_tokenizer += !text.empty() && !ids.empty();
}

void round_trip(size_t which, std::string_view text, bool parse_special) {
  const Tokenizer& tokenizer = tokenizers()[which];
  const std::string decoded = tokenizer.decode(tokenizer.encode(text, false, parse_special), true);
  if (which < kByteLevel) {
    check(decoded == re_encoded(text), "byte-level BPE does not give the text back");
  } else if (which == kRawBpe) {
    check(without_space_marks(decoded) == without_space_marks(re_encoded(text)),
          "raw BPE does not give the text back");
  } else if (which == kSpm && well_formed_utf8(text) == text) {
    check(without_space_marks(decoded) == without_space_marks(std::string(text)),
          "SPM does not give the text back");
  }
}

void stream_pieces(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Utf8Stream stream;
  std::string printed;
  for (const int32_t id : ids) {
    const std::string part = stream.push(tokenizer.piece(id, true));
    check(well_formed_utf8(part) == part, "a broken character was printed");
    check(stream.pending() <= 3, "more than a character is held back");
    printed += part;
  }
  printed += stream.flush();
  check(printed == well_formed_utf8(tokenizer.decode(ids, true)),
        "streamed text differs from the whole");
}

struct Stopped {
  std::string text;
  std::string stop;
  bool operator==(const Stopped&) const = default;
};

Stopped stop_run(StopStrings filter, std::string_view a, std::string_view b) {
  Stopped out;
  out.text = filter.push(a);
  out.text += filter.push(b);
  out.stop = filter.stop();
  if (!filter.stopped()) out.text += filter.flush();
  return out;
}

void every_split(std::string_view text, uint8_t flags) {
  text = text.substr(0, 100);
  std::vector<std::string> stops;
  for (size_t i = 0; i < 3 && !text.empty(); ++i) {
    const size_t at = (flags * 7u + i * 31u) % text.size();
    const std::string_view part = text.substr(at, 1 + (flags >> 4) + i);
    if (i != 1 || (flags & 8)) stops.emplace_back(part);
    if (flags & 4) stops.back().push_back('\x7f');  // a stop string that mostly never comes
  }
  const StopStrings filter(stops);
  const std::string whole = well_formed_utf8(text);
  const Stopped stopped = stop_run(filter, text, "");
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    Utf8Stream stream;
    std::string parts = stream.push(text.substr(0, cut));
    parts += stream.push(text.substr(cut));
    parts += stream.flush();
    check(parts == whole, "UTF-8 depends on the cut");
    check(stop_run(filter, text.substr(0, cut), text.substr(cut)) == stopped,
          "stop strings depend on the cut");
  }
}

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto b = static_cast<uint8_t>(bytes_[0]);
    bytes_.remove_prefix(1);
    return b;
  }
  std::string_view take(size_t n) {
    const std::string_view part = bytes_.substr(0, n);
    bytes_.remove_prefix(part.size());
    return part;
  }
  std::string_view rest() const { return bytes_; }

 private:
  std::string_view bytes_;
};

// Tokens, types, scores, merges and roles out of the input: to be refused with an Error, or to
// work.
void hostile_vocabulary(Reader input, uint8_t flags) {
  const char* kinds[] = {"gpt2", "llama", "gemma4"};
  const char* pres[] = {"", "gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35"};
  static const SyntheticVocabulary bases[] = {SyntheticVocabulary::byte_bpe("gpt-2"),
                                              SyntheticVocabulary::spm(true),
                                              SyntheticVocabulary::raw_bpe()};
  SyntheticVocabulary v = bases[flags % 3];  // its views point into the one that stays
  VocabularySource& source = v.source();
  source.file = "fuzz";
  const uint8_t head = input.byte();
  if (head & 1) {
    source.tokens.clear(), source.types.clear(), source.scores.clear();
    source.roles.fill(std::nullopt);  // ids of the tokens that were: refused before anything else
  }
  source.kind = kinds[flags % 3];
  source.pre = pres[head % 6];
  const size_t n_tokens = input.byte() % 40;
  for (size_t i = 0; i < n_tokens; ++i) {
    const uint8_t shape = input.byte();
    const std::string_view text = input.take(shape % 7);
    if (shape & 0x80) {
      source.tokens.push_back(text);  // may be there already, may be empty
      source.types.push_back(shape >> 4);
      source.scores.push_back(shape);
    } else {
      v.add_token(text, shape >> 4, -static_cast<double>(shape & 15));
    }
  }
  const size_t n_merges = input.byte() % 40;
  for (size_t i = 0; i < n_merges; ++i) {
    const uint8_t a = input.byte(), b = input.byte();
    if (source.tokens.empty() || a > 250) {
      source.merges.push_back(input.take(b % 8));
    } else {
      v.add_merge(source.tokens[a % source.tokens.size()], source.tokens[b % source.tokens.size()]);
    }
  }
  for (auto& role : source.roles) {
    if (head & 2) role = static_cast<int8_t>(input.byte());
  }
  if (head & 4) source.add_bos = true;
  if (head & 8) source.add_eos = true;
  if (head & 16 && !source.scores.empty()) source.scores.pop_back();
  if (head & 32) source.model_name = "Phi-3";
  try {
    const Tokenizer tokenizer(source);
    ++vocabularies;
    std::vector<int32_t> ids;
    encode_and_check(tokenizer, input.rest(), flags, ids);
    stream_pieces(tokenizer, ids);
  } catch (const Error& error) {
    check(error.code() == ExitCode::bad_file, "a wrong vocabulary is not a bad file");
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::atexit(report);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ++inputs;
  Reader input({reinterpret_cast<const char*>(data), size});
  const size_t which = input.byte() % (tokenizers().size() + 1);
  const uint8_t flags = input.byte();
  if (which == tokenizers().size()) {
    hostile_vocabulary(input, flags);
    return 0;
  }
  const std::string_view text = input.rest();
  std::vector<int32_t> ids;
  encode_and_check(tokenizers()[which], text, flags, ids);
  stream_pieces(tokenizers()[which], ids);
  round_trip(which, text, flags & 2);
  every_split(text, flags);
  return 0;
}
