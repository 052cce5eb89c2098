// Draft sources by name, as --spec-type gives them.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "draft/model_source.h"
#include "draft/ngram.h"
#include "draft/replay.h"
#include "draft/source.h"
#include "draft/suffix.h"

namespace lockstep::draft {

enum class SourceKind : uint8_t { ngram, suffix, model, replay };
const char* source_kind_name(SourceKind kind);  // "ngram", …

// Sources of which each drafts on from where the one before stopped; often a single one.
using SourceChain = std::vector<SourceKind>;

// A comma list, first = asked first: Lockstep's names and llama.cpp's ("ngram-simple" is ngram,
// "draft-simple" is model), and chains of them, "chain:ngram+model". "none" (alone) and "" give an
// empty list. Throws Error(bad_use) for a name that is unknown, not supported yet (saying what to
// use instead), or given twice, and for a chain of one.
std::vector<SourceChain> parse_spec_types(std::string_view text);

struct SourceConfig {
  NgramOptions ngram;
  SuffixOptions suffix;
  std::optional<ReplayOptions> replay;
  // For "model": the draft model; the caller has compared the vocabularies' texts.
  std::shared_ptr<const model::Model> draft_model;
  std::shared_ptr<kernels::Backend> backend;
  int64_t target_n_vocab = 0;
  ModelSourceOptions model;
};

// Null for an empty list. Throws Error(bad_use) where a kind lacks what it needs (a draft model, a
// recording).
std::shared_ptr<Source> make_source(const std::vector<SourceChain>& chains,
                                    const SourceConfig& config);

}  // namespace lockstep::draft
