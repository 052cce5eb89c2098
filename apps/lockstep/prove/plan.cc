#include "prove/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "draft/auto_depth.h"
#include "draft/chain.h"
#include "draft/model_source.h"
#include "draft/ngram.h"
#include "draft/replay.h"
#include "draft/suffix.h"

namespace lockstep::app {
namespace {

using kernels::KvType;
using SourceMaker = std::function<std::shared_ptr<draft::Source>(const Trace& plain)>;

std::string case_name(std::string_view prompt, std::string_view sampling, KvType k, KvType v) {
  std::string name = fmt::format("{} {}", prompt, sampling);
  if (k != KvType::f16 || v != KvType::f16) {
    name += fmt::format(" kv {}/{}", kernels::kv_type_name(k), kernels::kv_type_name(v));
  }
  return name;
}

// No more than so many tokens of a source at once, so that a chain has something left to do.
class Shortened final : public draft::Source {
 public:
  Shortened(std::shared_ptr<draft::Source> source, int most)
      : source_(std::move(source)), most_(most) {}
  std::string name() const override { return source_->name(); }
  draft::Proposal extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                         int n_max) override {
    return source_->extend(history, draft, std::min(n_max, most_));
  }
  void observe(std::span<const int32_t> history, int accepted) override {
    source_->observe(history, accepted);
  }
  void truncate(int64_t common) override { source_->truncate(common); }
  void set_sampling(const sample::Parameters& parameters) override {
    source_->set_sampling(parameters);
  }
  bool synthetic() const override { return source_->synthetic(); }

 private:
  std::shared_ptr<draft::Source> source_;
  int most_;
};

// Collects configurations; each method adds those of one thing that must not matter.
class Planner {
 public:
  Planner(Prover& prover, const PlanInputs& inputs) : prover_(prover), in_(inputs) {
    greedy_.temperature = 0;
    greedy_.seed = in_.seed;
    usual_.seed = in_.seed;
    // Far from the most probable token, over the whole vocabulary: drafts that look back are wrong.
    hot_.temperature = 1.5f;
    hot_.top_k = 0;
    hot_.top_p = 1;
    hot_.min_p = 0;
    hot_.seed = in_.seed;
    // The most frequent token so far wins: any model repeats itself.
    looping_.temperature = 0;
    looping_.frequency_penalty = -100;
    looping_.seed = in_.seed;
    penalised_.repeat_penalty = 1.15f;
    penalised_.frequency_penalty = 0.2f;
    penalised_.presence_penalty = 0.1f;
    penalised_.seed = in_.seed;
  }

  std::vector<Configuration> make() {
    repeat();
    drafts();
    widths();
    if (prover_.backend()->info().device == "cpu") {
      threads();
      instruction_sets();
    }
    chunks();
    prefixes();
    truncation();
    sampling();
    ids_alone();
    kv_types();
    together();
    if (!in_.quick) long_prompt();
    return std::move(plan_);
  }

 private:
  void add(std::string name, Needs needs, std::function<void(Prover&, Line&)> run) {
    plan_.push_back({std::move(name), std::move(needs), std::move(run)});
  }

  Case make_case(std::string_view prompt_name, const std::vector<int32_t>& prompt,
                 std::string_view sampling_name, const sample::Parameters& parameters) const {
    return make_case(prompt_name, prompt, sampling_name, parameters, in_.k_type, in_.v_type);
  }
  Case make_case(std::string_view prompt_name, const std::vector<int32_t>& prompt,
                 std::string_view sampling_name, const sample::Parameters& parameters, KvType k,
                 KvType v) const {
    return {case_name(prompt_name, sampling_name, k, v), prompt, parameters, k, v};
  }
  Case repetitive(std::string_view name, const sample::Parameters& parameters) const {
    return make_case("repetitive", in_.repetitive, name, parameters);
  }

  How how(int64_t tokens) const {
    How out;
    out.backend = prover_.backend();
    out.tokens = tokens;
    return out;
  }
  // Decodes in the case's kept session and compares.
  static void run_kept(Prover& prover, Line& line, const Case& of, const How& how) {
    Trace trace;
    prover.decode(prover.kept_session(of), of.prompt, of, how, trace);
    prover.judge(line, of, trace);
  }
  static void run_fresh(Prover& prover, Line& line, const Case& of, const How& how) {
    Trace trace;
    const auto session = prover.new_session(of, how.backend);
    prover.decode(*session, of.prompt, of, how, trace);
    prover.judge(line, of, trace);
  }

  // A recorded continuation that starts where the prompt ends, each position right with probability
  // `right`.
  SourceMaker replay(const Case& of, double right) const {
    const uint64_t seed = in_.seed;
    const int64_t n_vocab = prover_.model().graph().n_vocab;
    return [of, right, seed, n_vocab](const Trace& plain) {
      std::vector<int32_t> recorded = of.prompt;
      for (const auto& [position, token] : plain.tokens) recorded.push_back(token);
      draft::ReplayOptions options;
      options.recording = std::move(recorded);
      options.rates = {right};
      options.seed = seed;
      options.n_vocab = n_vocab;
      return std::make_shared<draft::ReplaySource>(options);
    };
  }
  SourceMaker drafter(std::shared_ptr<const model::Model> model) const {
    return [model = std::move(model), backend = prover_.backend(),
            n_vocab = prover_.model().graph().n_vocab](const Trace&) {
      return std::make_shared<draft::ModelSource>(model, backend, n_vocab);
    };
  }

  void repeat() {
    add("plain again", {}, [this](Prover& prover, Line& line) {
      run_fresh(prover, line, repetitive("T=0", greedy_), how(tokens()));
      run_fresh(prover, line, make_case("prose", in_.prose, "T=0", greedy_), how(tokens()));
      run_fresh(prover, line, make_case("prose", in_.prose, "T=0.8", usual_), how(tokens()));
    });
  }

  std::vector<int> depths(std::initializer_list<int> quick) const {
    if (in_.quick) return quick;
    std::vector<int> all;
    for (int depth = 1; depth <= 15; ++depth) all.push_back(depth);
    return all;
  }

  // One line a depth: over a text that says everything again (where a source that looks back is
  // right), and over the same text hot (where it is wrong). looks_back: over a loop too, since not
  // every model takes the repetition up.
  void draft_line(std::string_view source, int depth, Needs needs, bool looks_back,
                  std::function<SourceMaker(const Case&)> make) {
    if (!looks_back) needs.width(depth + 1);
    add(fmt::format("draft {} n={}", source, depth), std::move(needs),
        [this, depth, looks_back, make = std::move(make)](Prover& prover, Line& line) {
          How h = how(tokens());
          h.depth = depth;
          if (looks_back) {
            const Case loop = repetitive("loop", looping_);
            How few = h;
            few.tokens = 8;
            few.source = make(loop);
            run_kept(prover, line, loop, few);
          }
          const Case right = repetitive("T=0", greedy_);
          h.source = make(right);
          run_kept(prover, line, right, h);
          const Case wrong = repetitive("T=1.5", hot_);
          h.source = make(wrong);
          h.passes = in_.quick ? 3 : 6;
          run_kept(prover, line, wrong, h);
        });
  }

  void drafts() {
    const Needs both = Needs().accept().reject();
    for (const int depth : depths({4, 15})) {
      draft_line("ngram", depth, both, true, [](const Case&) -> SourceMaker {
        return [](const Trace&) { return std::make_shared<draft::NgramSource>(); };
      });
    }
    for (const int depth : depths({1, 8})) {
      draft_line("suffix", depth, both, true, [](const Case&) -> SourceMaker {
        return [](const Trace&) { return std::make_shared<draft::SuffixSource>(); };
      });
    }
    for (const int depth : depths({1, 2, 3, 7, 15})) {
      draft_line("replay", depth, both, false, [this](const Case& of) { return replay(of, 0.7); });
    }
    // The target drafting for itself is right where sampling allows it; a stranger with the same
    // vocabulary is wrong.
    const auto self = in_.drafter ? in_.drafter : prover_.shared_model();
    for (const int depth : depths({3})) {
      draft_line(in_.drafter ? "model (-md)" : "model (itself)", depth, Needs().accept(), false,
                 [this, self](const Case&) { return drafter(self); });
    }
    for (const int depth : depths({8})) {
      draft_line("chain:replay+ngram", depth, both, true, [this](const Case& of) -> SourceMaker {
        return [first = replay(of, 0.7)](const Trace& plain) {
          return std::make_shared<draft::ChainSource>(
              draft::Sources{std::make_shared<Shortened>(first(plain), 2),
                             std::make_shared<draft::NgramSource>()});
        };
      });
    }
    for (const int depth : depths({6})) {
      draft_line("chain:ngram+model", depth, Needs().accept(), true,
                 [this, self](const Case&) -> SourceMaker {
                   return [rest = drafter(self)](const Trace& plain) {
                     return std::make_shared<draft::ChainSource>(
                         draft::Sources{std::make_shared<draft::NgramSource>(), rest(plain)});
                   };
                 });
    }
    add("draft replay n=auto", both, [this](Prover& prover, Line& line) {
      for (const Case& of : {repetitive("T=0", greedy_), repetitive("T=1.5", hot_),
                             make_case("prose", in_.prose, "T=0.8", usual_)}) {
        How h = how(tokens());
        h.source = replay(of, 0.7);
        h.depth = draft::AutoDepth::kMaxDepth;
        h.automatic = true;
        run_kept(prover, line, of, h);
      }
    });
    if (!in_.wrong_drafter) return;
    for (const int depth : depths({5})) {
      draft_line("model (random)", depth, Needs().reject(), false,
                 [this](const Case&) { return drafter(in_.wrong_drafter); });
    }
  }

  // Passes of w rows over a known sequence, all rows' logits looked at.
  void widths() {
    std::vector<int64_t> widths;
    if (in_.quick) {
      widths = {2, 5, 16, 33, 64};
    } else {
      for (int64_t w = 2; w <= 17; ++w) widths.push_back(w);
      widths.insert(widths.end(), {31, 32, 33, 63, 64});
    }
    for (const int64_t width : widths) {
      add(fmt::format("width {}", width), Needs().width(width),
          [this, width](Prover& prover, Line& line) { teach(prover, line, width); });
    }
  }

  void teach(Prover& prover, Line& line, int64_t width) {
    const Case of = repetitive("T=0", greedy_);
    if (known_.empty()) {
      known_ = of.prompt;
      const std::vector<int32_t> rest = prover.continuation(of);
      known_.insert(known_.end(), rest.begin(), rest.end());
      run_teacher(prover, prover.plain_backend(), 1, known_plain_, nullptr);
    }
    Trace trace;
    run_teacher(prover, prover.backend(), width, trace, &known_plain_);
    const Compared compared = compare(known_plain_, trace);
    line.rows += compared.rows;
    line.states += compared.states;
    for (const auto& [w, passes] : trace.widths) line.widths[w] += passes;
    if (compared.first) {
      line.first = compared.first;
      line.first_case = "known sequence";
    }
  }

  void run_teacher(Prover& prover, const std::shared_ptr<kernels::Backend>& backend, int64_t width,
                   Trace& trace, const Trace* plain) const {
    const auto session = prover.new_session(repetitive("T=0", greedy_), backend);
    Recorder recorder(trace, plain);
    session->set_inspector(&recorder);
    session->set_chunk(width);
    session->evaluate(known_, [&](int64_t position, std::span<const float> row) {
      recorder.on_logits(position, row);
    });
    if (session->finish() == decode::Finish::fault) trace.fault = session->fault();
  }

  void threads() {
    for (const int threads : in_.quick ? std::vector<int>{1, 3} : std::vector<int>{1, 2, 3, 4}) {
      add(fmt::format("threads {}", threads), {}, [this, threads](Prover& prover, Line& line) {
        How h = how(in_.quick ? 8 : tokens());
        h.backend = prover.backend()->sibling(prover.backend()->info().isa, threads);
        run_fresh(prover, line, repetitive("T=0", greedy_), h);
      });
    }
  }

  void instruction_sets() {
    for (const std::string& isa : kernels::cpu_isas()) {
      if (isa == prover_.backend()->info().isa) continue;
      const std::shared_ptr<kernels::Backend> backend =
          prover_.backend()->sibling(isa, prover_.backend()->info().threads);
      add(fmt::format("isa {}", isa), {}, [this, backend](Prover& prover, Line& line) {
        How h = how(4);
        h.backend = backend;
        run_fresh(prover, line, make_case("prose", in_.prose, "T=0.8", usual_), h);
        // Kernels for many rows at once are others than those for a few.
        h.chunk = 512;
        run_fresh(prover, line, repetitive("T=0", greedy_), h);
      });
    }
  }

  void chunks() {
    for (const int64_t chunk :
         in_.quick ? std::vector<int64_t>{7} : std::vector<int64_t>{1, 2, 3, 7, 16, 31, 33}) {
      add(fmt::format("prompt in chunks of {}", chunk), Needs().width(chunk),
          [this, chunk](Prover& prover, Line& line) {
            How h = how(4);
            h.chunk = chunk;
            run_fresh(prover, line, repetitive("T=0", greedy_), h);
          });
    }
  }

  void prefixes() {
    add("prefix: the same prompt again", Needs().reuse(), [this](Prover& prover, Line& line) {
      const Case of = repetitive("T=0", greedy_);
      const auto session = prover.new_session(of, prover.backend());
      Trace first, second;
      prover.decode(*session, of.prompt, of, how(4), first);
      prover.decode(*session, of.prompt, of, how(8), second);
      prover.judge(line, of, first);
      prover.judge(line, of, second);
    });
    add("prefix: shared with another prompt", Needs().reuse(), [this](Prover& prover, Line& line) {
      const Case of = repetitive("T=0", greedy_);
      const std::vector<int32_t> other = branch_of(of.prompt);
      const Case before = make_case("branch", other, "T=0.8", usual_);
      const auto session = prover.new_session(of, prover.backend());
      session->set_max_tokens(4);
      session->set_sampling(before.sampling);
      session->begin(before.prompt);
      while (!session->finished()) session->step();
      Trace trace;
      prover.decode(*session, of.prompt, of, how(8), trace);
      prover.judge(line, of, trace);
    });
  }

  // A prompt that begins like this one and goes on otherwise: from its middle on, or, where a
  // sliding layer would have given back by then what a return to the middle needs, from later on.
  std::vector<int32_t> branch_of(const std::vector<int32_t>& prompt) const {
    const auto n = static_cast<int64_t>(prompt.size());
    const int64_t window = prover_.model().hyperparameters().window;
    const auto first_page = [&](int64_t size) {
      return window == 0 ? 0 : std::max<int64_t>(0, size - window + 1) / kernels::kPagePositions;
    };
    constexpr int64_t kOwn = 8, kDecoded = 4;
    int64_t shared = n / 2;
    while (shared < n - 1 && first_page(shared) != first_page(shared + kOwn + kDecoded)) ++shared;
    std::vector<int32_t> branch(prompt.begin(), prompt.begin() + shared);
    for (int64_t i = 0; i < kOwn; ++i) {
      branch.push_back(in_.code[static_cast<size_t>(i) % in_.code.size()]);
    }
    return branch;
  }

  // The history up to some way into the continuation.
  static std::vector<int32_t> history_of(Prover& prover, const Case& of, int64_t generated) {
    std::vector<int32_t> history = of.prompt;
    const std::vector<int32_t> rest = prover.continuation(of);
    history.insert(history.end(), rest.begin(), rest.begin() + generated);
    return history;
  }

  void truncation() {
    add("truncated after drafts", Needs().reject().reuse(), [this](Prover& prover, Line& line) {
      const Case of = repetitive("T=1.5", hot_);
      How h = how(8);
      h.source = replay(of, 0.5);
      h.depth = 6;
      const auto session = prover.new_session(of, prover.backend());
      Trace before, after;
      prover.decode(*session, of.prompt, of, h, before);
      const std::vector<int32_t> history = history_of(prover, of, 3);
      const int64_t reused = session->kv().pages_reused();
      session->truncate(static_cast<int64_t>(history.size()) - 2);
      after.pages_reused += session->kv().pages_reused() - reused;
      prover.decode(*session, history, of, h, after);
      prover.judge(line, of, before);
      prover.judge(line, of, after);
    });
    add("snapshot, another text, restored", Needs().reuse(), [this](Prover& prover, Line& line) {
      const Case of = repetitive("T=0", greedy_);
      const auto session = prover.new_session(of, prover.backend());
      Trace before, after;
      prover.decode(*session, of.prompt, of, how(4), before);
      const auto snapshot = session->snapshot();
      const std::vector<int32_t> history(session->history().begin(), session->history().end());
      // Somewhere else from here, over the pages that the snapshot shares.
      session->set_sampling(hot_);
      session->set_max_tokens(6);
      session->begin(history);
      while (!session->finished()) session->step();
      const int64_t reused = session->kv().pages_reused();
      session->restore(snapshot, history);
      after.pages_reused += session->kv().pages_reused() - reused;
      How h = how(8);
      h.source = replay(of, 0.7);
      h.depth = 4;
      prover.decode(*session, history, of, h, after);
      prover.judge(line, of, before);
      prover.judge(line, of, after);
    });
  }

  void sampling() {
    const std::pair<std::string, const sample::Parameters*> kinds[] = {
        {"T=0.8", &usual_}, {"T=0.8 penalties", &penalised_}, {"T=1.5", &hot_}};
    for (const auto& kind : kinds) {
      add(fmt::format("sampling {} with drafts", kind.first), Needs().accept().reject(),
          [this, kind](Prover& prover, Line& line) {
            const Case of = make_case("prose", in_.prose, kind.first, *kind.second);
            How h = how(tokens());
            h.source = replay(of, 0.7);
            h.depth = 5;
            run_kept(prover, line, of, h);
          });
    }
  }

  // Where nobody looks at logits rows, backends may leave them where they were computed, and
  // choices are made from what matters to them: the ids have to be those of the rows.
  void ids_alone() {
    const std::pair<std::string, const sample::Parameters*> kinds[] = {
        {"T=0", &greedy_}, {"T=0.8", &usual_}, {"T=0.8 penalties", &penalised_}};
    for (const auto& kind : kinds) {
      add(fmt::format("ids alone, sampling {}", kind.first), Needs().accept().reject().no_rows(),
          [this, kind](Prover& prover, Line& line) {
            const Case of = make_case("prose", in_.prose, kind.first, *kind.second);
            How h = how(tokens());
            h.rows = false;
            run_kept(prover, line, of, h);
            h.source = replay(of, 0.7);
            h.depth = 5;
            run_kept(prover, line, of, h);
          });
    }
  }

  void kv_types() {
    std::vector<std::pair<KvType, KvType>> types = {{KvType::f32, KvType::f32},
                                                    {KvType::q8_0, KvType::q8_0}};
    if (!in_.quick) {
      types.insert(types.end(), {{KvType::f16, KvType::q8_0},
                                 {KvType::q8_0, KvType::f16},
                                 {KvType::q4_0, KvType::q4_0},
                                 {KvType::q8_0, KvType::q4_0}});
    }
    for (const auto& type : types) {
      const KvType k = type.first, v = type.second;
      if (k == in_.k_type && v == in_.v_type) continue;
      if (!fits(k) || !fits(v)) continue;
      add(fmt::format("KV {}/{} with drafts", kernels::kv_type_name(k), kernels::kv_type_name(v)),
          Needs().accept().reject().width(7), [this, k, v](Prover& prover, Line& line) {
            const Case of = make_case("prose", in_.prose, "T=0.8", usual_, k, v);
            How h = how(in_.quick ? 8 : tokens());
            h.source = replay(of, 0.7);
            h.depth = 6;
            run_fresh(prover, line, of, h);
          });
    }
  }
  bool fits(KvType type) const {
    const int64_t block = kernels::kv_block_elements(type);
    const state::KvSpec spec = prover_.model().kv_spec(KvType::f16, KvType::f16, 64);
    return std::all_of(spec.layers.begin(), spec.layers.end(),
                       [block](const auto& layer) { return layer.head_dim % block == 0; });
  }

  // Nothing of what must not matter as in the plain run.
  void together() {
    add("all at once", Needs().accept().reject(), [this](Prover& prover, Line& line) {
      const Case of = make_case("code", in_.code, "T=0.8 penalties", penalised_);
      How h = how(tokens());
      h.backend = prover.backend()->sibling(prover.backend()->info().isa, 3);
      h.chunk = 5;
      h.source = replay(of, 0.8);
      h.depth = 9;
      run_fresh(prover, line, of, h);
    });
  }

  // Beyond a sliding window, many pages, and the first span of 16 pages.
  void long_prompt() {
    constexpr size_t kLong = 1040;
    if (prover_.model().hyperparameters().n_ctx_train < static_cast<int64_t>(kLong) + 256) return;
    std::vector<int32_t> prompt;
    while (prompt.size() < kLong) {
      for (const std::vector<int32_t>* part : {&in_.prose, &in_.code, &in_.repetitive}) {
        prompt.insert(prompt.end(), part->begin(), part->end());
      }
    }
    prompt.resize(kLong);
    const Case of = make_case("long", prompt, "T=0.8", usual_);
    for (const int64_t chunk : {100, 512}) {
      add(fmt::format("long prompt in chunks of {}", chunk), Needs().width(chunk),
          [this, of, chunk](Prover& prover, Line& line) {
            How h = how(4);
            h.chunk = chunk;
            run_fresh(prover, line, of, h);
          });
    }
    add("long prompt, drafts, cut, again", Needs().accept().reject().reuse(),
        [this, of](Prover& prover, Line& line) {
          How h = how(tokens());
          h.source = replay(of, 0.6);
          h.depth = 7;
          Trace first, second;
          decode::Session& session = prover.kept_session(of);
          prover.decode(session, of.prompt, of, h, first);
          const int64_t reused = session.kv().pages_reused();
          session.truncate(static_cast<int64_t>(of.prompt.size()) + 5);
          second.pages_reused += session.kv().pages_reused() - reused;
          prover.decode(session, history_of(prover, of, 5), of, h, second);
          prover.judge(line, of, first);
          prover.judge(line, of, second);
        });
  }

  int64_t tokens() const { return prover_.tokens(); }

  Prover& prover_;
  PlanInputs in_;
  sample::Parameters greedy_, usual_, hot_, looping_, penalised_;
  std::vector<Configuration> plan_;
  std::vector<int32_t> known_;
  Trace known_plain_;
};

}  // namespace

std::vector<Configuration> make_plan(Prover& prover, const PlanInputs& inputs) {
  // The configurations keep the planner alive: they share its prompts and parameters.
  const auto planner = std::make_shared<Planner>(prover, inputs);
  std::vector<Configuration> plan = planner->make();
  for (Configuration& configuration : plan) {
    configuration.run = [planner, run = std::move(configuration.run)](Prover& p, Line& line) {
      run(p, line);
    };
  }
  return plan;
}

}  // namespace lockstep::app
