#include "draft/factory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "draft/priority.h"

namespace lockstep::draft {
namespace {

struct Name {
  std::string_view name;
  SourceKind kind;
};
constexpr Name kNames[] = {
    {"ngram", SourceKind::ngram},        {"ngram-simple", SourceKind::ngram},
    {"suffix", SourceKind::suffix},      {"model", SourceKind::model},
    {"draft-simple", SourceKind::model}, {"replay", SourceKind::replay},
};

struct Absent {
  std::string_view name;
  std::string_view instead;
};
constexpr std::string_view kUseLookup = "use ngram or suffix";
constexpr std::string_view kUseModel = "use model with a small GGUF (-md), ngram or suffix";
constexpr Absent kAbsent[] = {
    {"ngram-map-k", kUseLookup}, {"ngram-map-k4v", kUseLookup},
    {"ngram-mod", kUseLookup},   {"ngram-cache", kUseLookup},
    {"draft-eagle3", kUseModel}, {"eagle3", kUseModel},
    {"draft-mtp", kUseModel},    {"mtp", kUseModel},
    {"draft-dflash", kUseModel}, {"dflash", kUseModel},
    {"draft-dspark", kUseModel}, {"dspark", kUseModel},
};

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ExitCode::bad_use, message);
}

SourceKind parse_name(std::string_view name) {
  for (const Name& known : kNames) {
    if (known.name == name) return known.kind;
  }
  for (const Absent& absent : kAbsent) {
    if (absent.name == name) {
      refuse(fmt::format("{} is not supported yet; {}", name, absent.instead));
    }
  }
  if (name.starts_with("chain:")) {
    refuse("chain: is not supported yet; a comma list asks its sources in order");
  }
  refuse(
      fmt::format("\"{}\" is not a draft source (none, ngram, suffix, model, replay; "
                  "llama.cpp's ngram-simple and draft-simple)",
                  shorten(name)));
}

}  // namespace

const char* source_kind_name(SourceKind kind) {
  for (const Name& known : kNames) {
    if (known.kind == kind) return known.name.data();
  }
  return "";
}

std::vector<SourceKind> parse_spec_types(std::string_view text) {
  std::vector<SourceKind> kinds;
  if (text.empty() || text == "none") return kinds;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    begin = end + 1;
    if (name == "none") refuse("none stands alone");
    const SourceKind kind = parse_name(name);
    if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) {
      refuse(fmt::format("{} is given twice", source_kind_name(kind)));
    }
    kinds.push_back(kind);
  }
  return kinds;
}

std::shared_ptr<Source> make_source(const std::vector<SourceKind>& kinds,
                                    const SourceConfig& config) {
  std::vector<std::shared_ptr<Source>> sources;
  for (const SourceKind kind : kinds) {
    switch (kind) {
      case SourceKind::ngram:
        sources.push_back(std::make_shared<NgramSource>(config.ngram));
        break;
      case SourceKind::suffix:
        sources.push_back(std::make_shared<SuffixSource>(config.suffix));
        break;
      case SourceKind::model:
        if (!config.draft_model) refuse("source model needs a draft model");
        sources.push_back(std::make_shared<ModelSource>(config.draft_model, config.backend,
                                                        config.target_n_vocab, config.model));
        break;
      case SourceKind::replay:
        if (!config.replay) refuse("source replay needs a recorded continuation");
        sources.push_back(std::make_shared<ReplaySource>(*config.replay));
        break;
    }
  }
  if (sources.empty()) return nullptr;
  if (sources.size() == 1) return sources.front();
  return std::make_shared<PrioritySource>(std::move(sources));
}

}  // namespace lockstep::draft
