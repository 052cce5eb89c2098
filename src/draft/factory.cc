#include "draft/factory.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "draft/chain.h"
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
  refuse(
      fmt::format("\"{}\" is not a draft source (none, ngram, suffix, model, replay, chain:a+b; "
                  "llama.cpp's ngram-simple and draft-simple)",
                  shorten(name)));
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

const char* source_kind_name(SourceKind kind) {
  for (const Name& known : kNames) {
    if (known.kind == kind) return known.name.data();
  }
  return "";
}

std::vector<SourceChain> parse_spec_types(std::string_view text) {
  constexpr std::string_view kChain = "chain:";
  std::vector<SourceChain> chains;
  if (text.empty() || text == "none") return chains;
  std::vector<SourceKind> seen;
  for (std::string_view entry : split(text, ',')) {
    const bool chain = entry.starts_with(kChain);
    if (chain) entry.remove_prefix(kChain.size());
    SourceChain kinds;
    for (const std::string_view name : chain ? split(entry, '+') : std::vector{entry}) {
      if (name == "none") refuse("none stands alone");
      const SourceKind kind = parse_name(name);
      if (std::find(seen.begin(), seen.end(), kind) != seen.end()) {
        refuse(fmt::format("{} is given twice", source_kind_name(kind)));
      }
      seen.push_back(kind);
      kinds.push_back(kind);
    }
    if (chain && kinds.size() < 2) {
      refuse(fmt::format("a chain of {} alone; write chain:{}+another, or {}",
                         source_kind_name(kinds[0]), source_kind_name(kinds[0]),
                         source_kind_name(kinds[0])));
    }
    chains.push_back(std::move(kinds));
  }
  return chains;
}

namespace {

std::shared_ptr<Source> make_one(SourceKind kind, const SourceConfig& config) {
  switch (kind) {
    case SourceKind::ngram:
      return std::make_shared<NgramSource>(config.ngram);
    case SourceKind::suffix:
      return std::make_shared<SuffixSource>(config.suffix);
    case SourceKind::model:
      if (!config.draft_model) refuse("source model needs a draft model");
      return std::make_shared<ModelSource>(config.draft_model, config.backend,
                                           config.target_n_vocab, config.model);
    case SourceKind::replay:
      if (!config.replay) refuse("source replay needs a recorded continuation");
      return std::make_shared<ReplaySource>(*config.replay);
  }
  return nullptr;
}

}  // namespace

std::shared_ptr<Source> make_source(const std::vector<SourceChain>& chains,
                                    const SourceConfig& config) {
  Sources sources;
  for (const SourceChain& chain : chains) {
    Sources links;
    for (const SourceKind kind : chain) links.push_back(make_one(kind, config));
    if (links.size() == 1) {
      sources.push_back(links.front());
    } else {
      sources.push_back(std::make_shared<ChainSource>(std::move(links)));
    }
  }
  if (sources.empty()) return nullptr;
  if (sources.size() == 1) return sources.front();
  return std::make_shared<PrioritySource>(std::move(sources));
}

}  // namespace lockstep::draft
