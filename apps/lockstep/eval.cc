// lockstep eval: log-probabilities of given token ids, perplexity, and KL against a saved result.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "cli.h"
#include "decode/session.h"
#include "engine.h"
#include "kernels/types.h"
#include "output.h"
#include "sample/sampler.h"
#include "text/tokenizer.h"

namespace lockstep::app {
namespace {

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
  try {
    return Json::parse(read_text_file(file));
  } catch (const Json::exception& error) {
    bad_file(file, fmt::format("not JSON: {}", error.what()));
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

std::vector<std::vector<SavedTop>> read_saved(const std::string& file,
                                              const std::vector<Sequence>& sequences) {
  const Json json = parse_json_file(file);
  std::vector<std::vector<SavedTop>> saved;
  try {
    const Json& list = json.at("sequences");
    if (list.size() != sequences.size()) {
      bad_file(file, fmt::format("has {} sequences, this run {}: not the same ids", list.size(),
                                 sequences.size()));
    }
    for (size_t i = 0; i < list.size(); ++i) {
      const size_t positions = sequences[i].ids.size() - 1;
      if (!list[i].contains("top")) {
        bad_file(file, "has no \"top\" lists; save it with eval --json --top N");
      }
      if (list[i].at("top").size() != positions) {
        bad_file(file, fmt::format("sequence {} has {} positions, this run {}: not the same ids", i,
                                   list[i].at("top").size(), positions));
      }
      std::vector<SavedTop>& tops = saved.emplace_back();
      for (const Json& top : list[i].at("top")) {
        SavedTop& entries = tops.emplace_back();
        for (const Json& entry : top) {
          entries.push_back({entry.at("id").get<int32_t>(), entry.at("logprob").get<double>()});
        }
      }
    }
  } catch (const Json::exception& error) {
    bad_file(file, fmt::format("not a saved result of lockstep eval: {}", error.what()));
  }
  return saved;
}

// KL(saved || this run) over the saved list and one bucket for every other token. Putting tokens
// together can only lower it, so this is a lower bound of the divergence over the whole vocabulary.
double divergence(const SavedTop& saved, std::span<const float> row, const std::string& file) {
  double kl = 0, p_rest = 1, q_rest = 1;
  for (const auto& [id, log_p] : saved) {
    if (id < 0 || id >= static_cast<int64_t>(row.size())) {
      bad_file(file, fmt::format("token id {} is not one of this model", id));
    }
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

  void add(const SavedTop& saved, std::span<const float> row, const std::string& file) {
    const double kl = divergence(saved, row, file);
    sum += kl;
    greatest = std::max(greatest, kl);
    same_first += !saved.empty() && saved[0].id == sample::top_logprobs(row, 1)[0].id;
  }
};

Json sequence_json(const Sequence& sequence, bool with_top) {
  Json out{{"tokens", sequence.ids.size()}, {"ids", sequence.ids}, {"logprobs", sequence.logprobs}};
  if (!with_top) return out;
  Json tops = Json::array();
  for (const auto& top : sequence.top) {
    Json entries = Json::array();
    for (const auto& [id, logprob] : top) entries.push_back({{"id", id}, {"logprob", logprob}});
    tops.push_back(std::move(entries));
  }
  out["top"] = std::move(tops);
  return out;
}

ExitCode eval(const EvalOptions& options) {
  if (options.ids_file.has_value() == options.text_file.has_value()) {
    bad_use(options.ids_file ? "--ids and -f contradict each other; give one"
                             : "nothing to evaluate; give --ids FILE.json or -f TEXT");
  }
  const auto k_type = parse_kv_type("-ctk", options.engine.k_type);
  const auto v_type = parse_kv_type("-ctv", options.engine.v_type);
  const auto model = open_model(options.engine);
  const auto backend = open_backend(options.engine);
  const int64_t context = choose_context(options.engine, *model, k_type, v_type);
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
  if (options.kl_file) saved = read_saved(*options.kl_file, sequences);

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
      if (!saved.empty()) comparison.add(saved[i][t - 1], row, *options.kl_file);
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

  const double mean = sum / static_cast<double>(total);
  const double perplexity = std::exp(-mean);
  if (options.json) {
    Json list = Json::array();
    for (const Sequence& sequence : sequences) {
      list.push_back(sequence_json(sequence, options.top.has_value()));
    }
    Json out{{"schema", "lockstep.eval/1"},
             {"model_sha256", to_hex(model->file_sha256())},
             {"law", kernels::kLaw},
             {"kv_types", {kernels::kv_type_name(k_type), kernels::kv_type_name(v_type)}},
             {"positions", total},
             {"mean_logprob", mean},
             {"perplexity", perplexity},
             {"kl", Json()},
             {"sequences", std::move(list)}};
    if (options.kl_file) {
      out["kl"] = {{"mean", comparison.sum / static_cast<double>(total)},
                   {"max", comparison.greatest},
                   {"top1_agreement",
                    static_cast<double>(comparison.same_first) / static_cast<double>(total)}};
    }
    print_json(out);
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
  flags.integer("--top", options->top, 1, 1000);
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
