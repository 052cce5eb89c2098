// What an attempt changed, in one spelling: "MTP_P_MIN=0.1360", "--spec-draft-p-min 0.136" and a
// run named "...-pmin013600-..." all set p_min to 0.136.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::lab {

struct Setting {
  std::string key;    // canonical: "p_min"; of variables that nobody knows, their lower-case name
  std::string value;  // numbers as the shortest decimal, switches as 1 and 0, the rest lower-case
  bool operator==(const Setting&) const = default;
  auto operator<=>(const Setting&) const = default;
};

// The settings that a text says: KEY=VALUE, --flag VALUE, and phrases as people write them in
// tables
// ("draft K/V q8_0/q8_0", "B/U=512", "direct unroll 8"). Sorted, one a key: the last one said.
std::vector<Setting> settings_of_text(std::string_view text);
// The settings that a run's name has between its dashes: pmin0136, th16, b768u768, n8unroll8,
// dtb28.
std::vector<Setting> settings_of_run_name(std::string_view name);
// What `text` says that is no setting: words, lower-case, letters and digits alone.
std::vector<std::string> words_of_text(std::string_view text);

std::string canonical_key(std::string_view key);
std::string canonical_value(std::string_view value);
// Lower-case letters and digits of a text, for finding words in names.
std::string folded(std::string_view text);
// SHA-256, as hex, over the lines "key=value\n" in order of key: equal for what changes the same.
std::string fingerprint(const std::vector<Setting>& settings);

}  // namespace lockstep::lab
