// What one generation did, with all that its text and its speed depend on: the object that every
// command and the server share. Fields: docs (DESIGN "Surfaces").
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "decode/program.h"
#include "decode/session.h"

namespace lockstep::decode {

// A result without all of these can't be compared with another.
struct Identity {
  std::string law;  // "ls1"
  Program engine;
  std::string model_sha256;
  std::string model_name;  // general.name of the file, or its path
  std::string device, isa;
  int threads = 0;
  std::string k_type, v_type;
  std::string draft_source;  // "" for plain
  std::string draft_sha256;  // of the files that the source reads
  DepthPolicy depth;
  sample::Parameters sampling;
  int64_t context = 0;
  int64_t chunk = 0;
};

struct Result {
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  std::string token_sha256;  // of the generated ids, little-endian int32 (law: Hashes)
  Timing timing;
  DraftCounts draft;
  Phases phases;
  Finish finish = Finish::none;
  std::string fault;
  Identity identity;
  bool synthetic = false;  // a synthetic model, or drafts from a recording

  // Tokens after the first step's, over the time after it; 0 where there are none. (With drafts the
  // first step may bring several tokens at once: counting those would flatter.)
  double decode_tok_s() const;
  double wall_tok_s() const;  // all tokens over the time since begin()
  // Tokens a step committed, accepted drafts and one more.
  double mean_accepted_len() const;
};

// Of the generation since the session's last begin(). The model's hash is computed where it was not
// yet (a read of the whole file).
Result make_result(const Session& session, const Program& engine);

std::string token_sha256(std::span<const int32_t> ids);

nlohmann::ordered_json to_json(const sample::Parameters& parameters);
nlohmann::ordered_json to_json(const Identity& identity);
nlohmann::ordered_json to_json(const Result& result);

}  // namespace lockstep::decode
