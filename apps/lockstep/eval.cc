// lockstep eval: log-probabilities of given token ids, perplexity, and KL against a saved result.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "cli.h"
#include "decode/session.h"
#include "engine.h"
#include "json_stream.h"
#include "kernels/types.h"
#include "output.h"
#include "sample/sampler.h"
#include "text/tokenizer.h"

namespace lockstep::app {
namespace {

constexpr std::string_view kSchema = "lockstep.eval/1";

struct EvalOptions {
  EngineOptions engine;
  std::optional<std::string> ids_file, text_file, kl_file;
  std::optional<int64_t> top;
  bool json = false;
};

struct Sequence {
  std::vector<int32_t> ids;
  std::vector<double> logprobs;                        // [t]: of ids[t + 1]
  std::vector<std::vector<sample::TokenLogprob>> top;  // [t], when asked for
};

// One position of a saved result: its most probable tokens there.
using SavedTop = std::vector<sample::TokenLogprob>;

[[noreturn]] void bad_file(const std::string& file, const std::string& what) {
  throw Error(ExitCode::bad_file, fmt::format("{}: {}", file, what));
}

Json parse_json_file(const std::string& file) {
  const std::string text = read_text_file(file);
  // The parser would take a zero byte for the end of the text, and what follows it unread.
  if (const size_t zero = text.find('\0'); zero != std::string::npos) {
    bad_file(file, fmt::format("not JSON: byte {} is zero; save the file as plain text", zero + 1));
  }
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    if (error.byte > text.size()) {
      bad_file(file, fmt::format("not JSON: it ends after {} bytes in the middle of a value; save "
                                 "it again, whole",
                                 text.size()));
    }
    bad_file(file, fmt::format("not JSON: a mistake at byte {}; correct it there, or save it again",
                               error.byte));
  } catch (const Json::exception&) {
    bad_file(file, "not JSON that can be used: a number in it has no binary64 value; correct it");
  }
}

std::vector<Sequence> read_ids(const std::string& file, int64_t n_vocab) {
  const Json json = parse_json_file(file);
  if (!json.is_array()) bad_file(file, "not a list of lists of token ids");
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < json.size(); ++i) {
    if (!json[i].is_array())
      bad_file(file, fmt::format("element {} is not a list of token ids", i));
    Sequence& sequence = sequences.emplace_back();
    for (const Json& id : json[i]) {
      if (!id.is_number_integer() || id < 0 || id >= n_vocab) {
        bad_file(file, fmt::format("list {}, element {}: not a token id of this model (0 to {})", i,
                                   sequence.ids.size(), n_vocab - 1));
      }
      sequence.ids.push_back(id.get<int32_t>());
    }
    if (sequence.ids.size() < 2) {
      bad_file(file, fmt::format("list {} has fewer than two ids: nothing to predict", i));
    }
  }
  if (sequences.empty()) bad_file(file, "holds no list");
  return sequences;
}

// A text becomes sequences of at most `context` tokens, each with the BOS that the model asks for.
std::vector<Sequence> read_sequences(const std::string& file, const text::Tokenizer& tokenizer,
                                     int64_t context) {
  const std::vector<int32_t> ids = tokenizer.encode(read_text_file(file), false, false);
  const bool bos = tokenizer.add_bos() && tokenizer.bos() >= 0;
  const auto room = static_cast<size_t>(context - (bos ? 1 : 0));
  std::vector<Sequence> sequences;
  for (size_t begin = 0; begin < ids.size(); begin += room) {
    Sequence sequence;
    if (bos) sequence.ids.push_back(tokenizer.bos());
    sequence.ids.insert(sequence.ids.end(), ids.begin() + static_cast<ptrdiff_t>(begin),
                        ids.begin() + static_cast<ptrdiff_t>(std::min(ids.size(), begin + room)));
    if (sequence.ids.size() >= 2) sequences.push_back(std::move(sequence));
  }
  if (sequences.empty()) bad_file(file, "has fewer than two tokens: nothing to predict");
  return sequences;
}

// What a saved result must agree with.
struct Run {
  const std::vector<Sequence>& sequences;
  int64_t n_vocab;
  std::string model_sha256;
};

// Reads a saved result, and takes nothing on trust: a divergence from numbers that are none, or
// from other ids, would look like any other.
class SavedReader {
 public:
  SavedReader(const std::string& file, const Run& run)
      : file_(file), run_(run), seen_(static_cast<size_t>(run.n_vocab), -1) {}

  std::vector<std::vector<SavedTop>> read() {
    const Json json = parse_json_file(file_);
    if (!json.is_object()) fail("not a saved result of lockstep eval: not an object");
    const std::string schema = string(json, "schema");
    if (schema != kSchema) {
      fail(fmt::format("schema: \"{}\", and not {}; save it with eval --json --top N",
                       escape(schema, 60), kSchema));
    }
    const Json& n_vocab = member(json, "n_vocab", "n_vocab");
    if (!n_vocab.is_number_integer() || n_vocab != run_.n_vocab) {
      fail(
          fmt::format("n_vocab: not {}, the vocabulary of this model; compare models of one "
                      "vocabulary",
                      run_.n_vocab));
    }
    const std::string sha256 = string(json, "model_sha256"), law = string(json, "law");
    const Json& list = member(json, "sequences", "sequences");
    if (!list.is_array() || list.size() != run_.sequences.size()) {
      fail(fmt::format("sequences: not a list of {}, as in this run: not the same ids",
                       run_.sequences.size()));
    }
    std::vector<std::vector<SavedTop>> saved;
    for (size_t i = 0; i < list.size(); ++i) {
      saved.push_back(sequence(list[i], fmt::format("sequences[{}]", i), run_.sequences[i]));
    }
    // Comparing quantisations is what this is for, so another model is no error; it is said, since
    // it may also be an oversight.
    std::string others;
    if (sha256 != run_.model_sha256) others += "another model (model_sha256)";
    if (law != kernels::kLaw) others += others.empty() ? "another law" : " under another law";
    if (!others.empty()) note(fmt::format("{}: saved from {}", file_, others));
    return saved;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { bad_file(file_, what); }

  const Json& member(const Json& object, const char* key, const std::string& where) const {
    if (!object.is_object() || !object.contains(key)) fail(fmt::format("{}: is not there", where));
    return object.at(key);
  }
  std::string string(const Json& object, const char* key) const {
    const Json& value = member(object, key, key);
    if (!value.is_string()) fail(fmt::format("{}: not a string", key));
    return value.get<std::string>();
  }

  std::vector<SavedTop> sequence(const Json& json, const std::string& where, const Sequence& ours) {
    const Json& ids = member(json, "ids", where + ".ids");
    if (!ids.is_array() || ids.size() != ours.ids.size()) {
      fail(fmt::format("{}.ids: not a list of {}, as in this run: not the same ids", where,
                       ours.ids.size()));
    }
    for (size_t t = 0; t < ids.size(); ++t) {
      if (!ids[t].is_number_integer() || ids[t] != ours.ids[t]) {
        fail(fmt::format("{}.ids[{}]: not {}, as in this run: not the same ids", where, t,
                         ours.ids[t]));
      }
    }
    if (!json.contains("top")) {
      fail(fmt::format("{}.top: is not there; save it with eval --json --top N", where));
    }
    const Json& lists = json.at("top");
    if (!lists.is_array() || lists.size() != ids.size() - 1) {
      fail(fmt::format("{}.top: not a list of {}, one for each id but the first", where,
                       ids.size() - 1));
    }
    std::vector<SavedTop> tops;
    for (size_t t = 0; t < lists.size(); ++t) {
      tops.push_back(top(lists[t], fmt::format("{}.top[{}]", where, t)));
    }
    return tops;
  }

  SavedTop top(const Json& list, const std::string& where) {
    if (!list.is_array() || list.empty()) fail(where + ": not a list with a token in it");
    if (count_ == 0) count_ = list.size();
    if (list.size() != count_) {
      fail(fmt::format("{}: {} tokens, and {} in the first list", where, list.size(), count_));
    }
    ++position_;
    constexpr double kRounding = 1e-6;
    SavedTop entries;
    double p = 0;
    for (size_t k = 0; k < list.size(); ++k) {
      const std::string at = fmt::format("{}[{}]", where, k);
      const Json& id = member(list[k], "id", at + ".id");
      if (!id.is_number_integer() || id < 0 || id >= run_.n_vocab) {
        fail(fmt::format("{}.id: not a token id of this model (0 to {})", at, run_.n_vocab - 1));
      }
      const Json& logprob = member(list[k], "logprob", at + ".logprob");
      if (!logprob.is_number() || !std::isfinite(logprob.get<double>()) ||
          logprob.get<double>() > kRounding) {
        fail(fmt::format("{}.logprob: not the logarithm of a probability", at));
      }
      entries.push_back({id.get<int32_t>(), logprob.get<double>()});
      int64_t& seen = seen_[static_cast<size_t>(entries.back().id)];
      if (seen == position_) fail(fmt::format("{}.id: {} is in the list twice", at, id.dump()));
      seen = position_;
      if (k > 0 && entries[k].logprob > entries[k - 1].logprob) {
        fail(
            fmt::format("{}.logprob: more than the one before it, and the list begins with the "
                        "most probable",
                        at));
      }
      p += std::exp(entries.back().logprob);
    }
    if (p > 1 + kRounding) fail(fmt::format("{}: its probabilities add up to {:.6f}", where, p));
    return entries;
  }

  const std::string& file_;
  const Run& run_;
  std::vector<int64_t> seen_;  // by id: the last position that listed it
  int64_t position_ = 0;
  size_t count_ = 0;  // tokens in every list
};

// KL(saved || this run) over the saved list and one bucket for every other token. Putting tokens
// together can only lower it, so this is a lower bound of the divergence over the whole vocabulary.
double divergence(const SavedTop& saved, std::span<const float> row) {
  double kl = 0, p_rest = 1, q_rest = 1;
  for (const auto& [id, log_p] : saved) {
    const double log_q = sample::logprob_of(row, id);
    const double p = std::exp(log_p);
    kl += p * (log_p - log_q);
    p_rest -= p;
    q_rest -= std::exp(log_q);
  }
  // What is left of 1 after the listed probabilities is rounding when it is this small.
  constexpr double kRounding = 1e-9;
  if (p_rest > kRounding) kl += p_rest * std::log(p_rest / std::max(q_rest, kRounding));
  return kl;
}

struct Comparison {
  double sum = 0, greatest = 0;
  int64_t same_first = 0;

  void add(const SavedTop& saved, std::span<const float> row) {
    const double kl = divergence(saved, row);
    sum += kl;
    greatest = std::max(greatest, kl);
    same_first += saved[0].id == sample::top_logprobs(row, 1)[0].id;
  }
};

void write_sequence(JsonStream& out, const Sequence& sequence, bool with_top) {
  out.begin('{');
  out.key("tokens").value(sequence.ids.size());
  out.key("ids").values(sequence.ids);
  out.key("logprobs").values(sequence.logprobs);
  if (with_top) {
    out.key("top").begin('[');
    for (const auto& top : sequence.top) {
      out.begin('[');
      for (const auto& [id, logprob] : top) {
        out.begin('{');
        out.key("id").value(id);
        out.key("logprob").value(logprob);
        out.end('}');
      }
      out.end(']');
    }
    out.end(']');
  }
  out.end('}');
}

ExitCode eval(const EvalOptions& options) {
  if (options.ids_file.has_value() == options.text_file.has_value()) {
    bad_use(options.ids_file ? "--ids and -f contradict each other; give one"
                             : "nothing to evaluate; give --ids FILE.json or -f TEXT");
  }
  const auto k_type = parse_kv_type(options.engine.k_type);
  const auto v_type = parse_kv_type(options.engine.v_type);
  const auto model = open_model(options.engine);
  const auto backend = open_backend(options.engine);
  const int64_t context = choose_context(options.engine, *model, k_type, v_type);
  if (context < 2) {
    bad_use(
        fmt::format("-c {}: a token is predicted from one before it; give -c 2 or more", context));
  }
  std::vector<Sequence> sequences;
  if (options.ids_file) {
    sequences = read_ids(*options.ids_file, model->graph().n_vocab);
  } else {
    sequences = read_sequences(*options.text_file, text::Tokenizer::load(model->file()), context);
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (static_cast<int64_t>(sequences[i].ids.size()) > context) {
      bad_use(fmt::format("list {} has {} ids, the context {}; raise -c or cut the list", i,
                          sequences[i].ids.size(), context));
    }
  }
  std::vector<std::vector<SavedTop>> saved;
  if (options.kl_file) {
    const Run run{sequences, model->graph().n_vocab, to_hex(model->file_sha256())};
    saved = SavedReader(*options.kl_file, run).read();
  }

  int64_t total = 0, done = 0;
  for (const Sequence& sequence : sequences) total += static_cast<int64_t>(sequence.ids.size()) - 1;
  Progress progress;
  Comparison comparison;
  double sum = 0;
  decode::SessionOptions session_options;
  session_options.context = context;
  session_options.k_type = k_type;
  session_options.v_type = v_type;
  session_options.chunk = options.engine.chunk.value_or(64);
  decode::Session session(model, backend, session_options);
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& sequence = sequences[i];
    const auto on_row = [&](int64_t position, std::span<const float> row) {
      const auto t = static_cast<size_t>(position);
      const double logprob = sample::logprob_of(row, sequence.ids[t]);
      sequence.logprobs.push_back(logprob);
      sum += logprob;
      if (options.top) {
        sequence.top.push_back(sample::top_logprobs(row, static_cast<int>(*options.top)));
      }
      if (!saved.empty()) comparison.add(saved[i][t - 1], row);
      if (++done % 64 == 0) progress.show(fmt::format("{}/{} positions", done, total));
    };
    // The last id predicts nothing that is known.
    session.evaluate(std::span(sequence.ids).first(sequence.ids.size() - 1), on_row);
    if (session.finish() == decode::Finish::fault) {
      throw Error(ExitCode::check_failed,
                  fmt::format("{}, list {}: {}", model->file().name(), i, session.fault()));
    }
  }
  progress.clear();
  model->file().refuse_if_changed();

  const double mean = sum / static_cast<double>(total);
  const double perplexity = std::exp(-mean);
  if (options.json) {
    JsonStream out;
    out.key("schema").value(kSchema);
    out.key("model_sha256").value(to_hex(model->file_sha256()));
    out.key("law").value(kernels::kLaw);
    out.key("kv_types").begin('[');
    out.value(kernels::kv_type_name(k_type));
    out.value(kernels::kv_type_name(v_type));
    out.end(']');
    out.key("n_vocab").value(model->graph().n_vocab);
    out.key("positions").value(total);
    out.key("mean_logprob").value(mean);
    out.key("perplexity").value(perplexity);
    out.key("kl");
    if (options.kl_file) {
      out.begin('{');
      out.key("mean").value(comparison.sum / static_cast<double>(total));
      out.key("max").value(comparison.greatest);
      out.key("top1_agreement")
          .value(static_cast<double>(comparison.same_first) / static_cast<double>(total));
      out.end('}');
    } else {
      out.value(nullptr);
    }
    out.key("sequences").begin('[');
    for (const Sequence& sequence : sequences) {
      write_sequence(out, sequence, options.top.has_value());
    }
    out.end(']');
    out.finish();
    return ExitCode::ok;
  }
  std::string out =
      fmt::format("{} positions in {} sequence{}: mean log-probability {:.6f}, perplexity {:.4f}\n",
                  total, sequences.size(), sequences.size() == 1 ? "" : "s", mean, perplexity);
  if (options.kl_file) {
    out += fmt::format(
        "against {}: mean KL {:.6f}, greatest {:.6f} (over its listed tokens and one bucket for "
        "the "
        "rest), same first token {:.2f} %\n",
        escape(*options.kl_file), comparison.sum / static_cast<double>(total), comparison.greatest,
        100.0 * static_cast<double>(comparison.same_first) / static_cast<double>(total));
  }
  print(out);
  return ExitCode::ok;
}

}  // namespace

Runner set_up_eval(Flags& flags) {
  const auto options = std::make_shared<EvalOptions>();
  options->engine.bind_model(flags);
  options->engine.bind_backend(flags);
  options->engine.bind_kv_types(flags);
  options->engine.bind_context(flags);
  flags.text("--ids", options->ids_file);
  flags.text("--file", options->text_file);
  flags.integer("--top", options->top, 1, 1024);
  flags.text("--kl", options->kl_file);
  flags.toggle("--json", options->json);
  flags.describe(
      "Gives the log-probability of every token of a text or of lists of ids, and the perplexity. "
      "--kl compares with a saved result: KL(saved || this run) over the saved list of each "
      "position "
      "and one bucket for all other tokens.",
      "lockstep eval -m model.gguf -f text.txt --json --top 20 > saved.json");
  return [options] { return eval(*options); };
}

}  // namespace lockstep::app
