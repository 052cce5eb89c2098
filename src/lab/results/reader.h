// Result files of engines and benchmark tools as the lab's objects.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/results/object.h"

namespace lockstep::lab {

// What a file held. A `ref` of an object names an earlier object of the list, or the artifact.
struct Reading {
  std::string format;    // "runs-csv", "llama-bench-json", "lockstep.run/1", …
  std::string artifact;  // SHA-256 of the file's bytes
  std::vector<Object> objects;
  size_t skipped = 0;              // rows that could not be read
  std::vector<std::string> notes;  // what was skipped or not understood, one line each, at most 50
};

inline constexpr size_t kMaxResultBytes = size_t{256} << 20;

// Reads the content of a result file: the table of runs (CSV with the columns run, change,
// fresh_tok_s and verdict), llama-bench's JSON, JSONL and CSV, `lockstep run --json`, `lockstep
// bench
// --json` and `-o jsonl`, `lockstep lab log --json`, answers of llama-server and `lockstep serve`
// with `timings`, and vLLM's `bench serve --save-result`. `name` is for messages. Rows that cannot
// be read are skipped and counted; Error(bad_file) where nothing can be used, with what would have
// been.
Reading read_result(std::string_view name, std::string_view bytes);

// What a full identity has to say, as names under "effective.": without one of them a result is
// evidence and never a record.
inline constexpr std::string_view kIdentityKeys[] = {
    "model.sha256", "engine.name", "engine.binary_sha256", "device",   "threads",
    "kv.k_type",    "kv.v_type",   "draft.source",         "sampling", "context"};
// Of these, the ones that `identity` does not know.
std::vector<std::string> identity_gaps(const Object& identity);
// Keys whose requested and effective values differ: "n_max: requested 7, effective 5".
std::vector<std::string> identity_mismatches(const Object& identity);

// Whether a retry condition holds for an identity: "never", "when KEY != VALUE" or "when KEY =
// VALUE" (a key under effective.). nullopt where it is prose or the identity does not say the key.
std::optional<bool> retry_holds(std::string_view condition, const Object* identity);

}  // namespace lockstep::lab
