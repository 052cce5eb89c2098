// Shared by the readers of result files.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"
#include "lab/results/reader.h"

namespace lockstep::lab {

using Json = nlohmann::json;

inline constexpr size_t kMaxNotes = 50;

inline void add_note(Reading& reading, std::string_view text) {
  if (reading.notes.size() < kMaxNotes) reading.notes.push_back(escape(text, 300));
}

// Something that could not be read: counted, and said for the first ones.
inline void skip(Reading& reading, std::string_view why) {
  ++reading.skipped;
  add_note(reading, why);
}

inline Origin origin_in(const Reading& reading, Provenance provenance, std::string_view place) {
  return {provenance,
          fmt::format("artifact {}{}{}", reading.artifact, place.empty() ? "" : " ", place)};
}

// The value at a dotted path, or null: "draft.accepted".
const Json* at_path(const Json& object, std::string_view path);

// Copies the value at `path` to the fact `name`: numbers, booleans and texts as such, lists and
// objects as JSON. What is missing, null or of another type becomes an absent fact with the reason.
enum class Want : uint8_t { integer, real, boolean, text, json };
void copy_fact(Object& object, const Origin& origin, const Json& from, std::string_view path,
               std::string_view name, Want want);

// The value as one line of text, as identities keep it: texts without quotes.
std::string plain(const Json& value);

// Refs to the artifact and the place in it, so that two equal rows of one file stay two rows.
void set_place(Object& object, const Reading& reading, std::string_view place);

void read_runs_csv(Reading& reading, std::string_view bytes);
void read_llama_bench_csv(Reading& reading, std::string_view bytes);
void read_llama_bench(Reading& reading, const Json& test, std::string_view place);
void read_lockstep_run(Reading& reading, const Json& result);
void read_lockstep_bench(Reading& reading, const Json& result);
void read_lockstep_bench_row(Reading& reading, const Json& row, std::string_view place);
void read_lab_log(Reading& reading, const Json& result);
void read_vllm_bench(Reading& reading, const Json& result);
void read_server_answer(Reading& reading, const Json& answer, std::string_view place);
// The identity of one of Lockstep's own results; `identity` may be null.
Object lockstep_identity(const Reading& reading, const Json* identity, std::string_view place);

}  // namespace lockstep::lab
