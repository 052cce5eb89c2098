#include "lab/noise/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.h"

namespace lockstep::lab::noise {
namespace {

using Settings = std::map<std::string, std::string>;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::vector<std::string> split(std::string_view text, std::string_view separators) {
  std::vector<std::string> out;
  std::string part;
  for (const char c : text) {
    if (separators.find(c) == std::string_view::npos) {
      part += c;
    } else if (!part.empty()) {
      out.push_back(std::move(part));
      part.clear();
    }
  }
  if (!part.empty()) out.push_back(std::move(part));
  return out;
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(),
                                      [](unsigned char c) { return std::isdigit(c) != 0; });
}

// "0.13600" and "0.136" are one value.
std::string plain_number(std::string_view text) {
  if (text.find('.') == std::string_view::npos) return std::string(text);
  std::string out(text);
  while (out.back() == '0') out.pop_back();
  if (out.back() == '.') out.pop_back();
  return out;
}

// "20260624T173350Z", "20260624T2047", "20260626T0640Z" as YYYYMMDDHHMMSS; "" for anything else.
std::string timestamp(std::string_view token) {
  if (!token.empty() && (token.back() == 'Z' || token.back() == 'z')) token.remove_suffix(1);
  const size_t t = token.find_first_of("Tt");
  if (t != 8 || !all_digits(token.substr(0, 8)) || !all_digits(token.substr(9))) return "";
  std::string time(token.substr(9));
  if (time.size() != 4 && time.size() != 6) return "";
  time.resize(6, '0');
  return fmt::format("{}{}", token.substr(0, 8), time);
}

// What the recipes of the table were called, newest first; a name has a family when it has all its
// words. phrases are the same in a change's text.
struct Family {
  std::string_view name;
  std::vector<std::string_view> words;
  std::vector<std::string_view> phrases;
};
const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      {"selectedsoftmax-weightedsum",
       {"selectedsoftmax", "weightedsum"},
       {"llama_gemma4_moe_selected_softmax=1", "llama_gemma4_moe_weighted_sum=1"}},
      {"immediatecl1", {"immediatecl1"}, {"ur_l0_use_immediate_commandlists=1"}},
      {"rowargmax-safer", {"rowargmax", "safer"}, {}},
      {"argmaxrows-guard", {"argmaxrows", "guard"}, {"guarded argmaxrows"}},
      {"rowargmax-deferh", {"rowargmax", "deferh"}, {}},
  };
  return all;
}

// Words of a run's name that say when, where and how much, and not what was changed.
bool neutral_in_name(const std::string& token) {
  static const std::set<std::string, std::less<>> words = {
      "gemma4", "q8",    "screen", "full",    "smoke",  "current",       "exec",
      "retry",  "rerun", "repeat", "control", "record", "recordcontrol", "exact"};
  if (words.contains(token) || !timestamp(token).empty()) return true;
  for (const std::string_view prefix : {"gpu", "repeat"}) {
    if (token.starts_with(prefix) && all_digits(std::string_view(token).substr(prefix.size()))) {
      return true;
    }
  }
  // The families' second words come with other ones too.
  return token == "rowargmax" || token == "safer" || token == "deferh" || token == "argmaxrows" ||
         token == "guard" || token == "immediatecl1";
}

// A setting in a run's name: pmin0136, th8, b768u768, dtb36, dt28, n8, unroll7, draftq40, poll75.
bool setting_in_name(const std::string& token, Settings& settings) {
  const auto after = [&](std::string_view prefix) -> std::string {
    if (!token.starts_with(prefix)) return "";
    const std::string_view rest = std::string_view(token).substr(prefix.size());
    return all_digits(rest) ? std::string(rest) : "";
  };
  if (const std::string digits = after("pmin"); digits.size() > 1) {
    settings["p_min"] = plain_number(fmt::format("0.{}", digits.substr(1)));
    return true;
  }
  const struct {
    std::string_view prefix, key;
  } kNumbers[] = {{"th", "threads"},       {"dtb", "draft threads batch"},
                  {"dt", "draft threads"}, {"unroll", "n_max"},
                  {"n", "n_max"},          {"poll", "poll"},
                  {"nmin", "n_min"}};
  for (const auto& number : kNumbers) {
    if (const std::string value = after(number.prefix); !value.empty()) {
      settings[std::string(number.key)] = value;
      return true;
    }
  }
  if (token == "draftq40") {
    settings["draft"] = "q4_0";
    return true;
  }
  const size_t u = token.find('u');
  if (token.starts_with('b') && u != std::string::npos &&
      all_digits(std::string_view(token).substr(1, u - 1)) &&
      all_digits(std::string_view(token).substr(u + 1))) {
    settings["batch"] = token.substr(1, u - 1);
    settings["ubatch"] = token.substr(u + 1);
    return true;
  }
  return false;
}

// A KEY=VALUE of a change's text.
void assignment(const std::string& key, const std::string& value, Settings& settings) {
  static const std::map<std::string, std::vector<std::string>, std::less<>> names = {
      {"mtp_p_min", {"p_min"}},
      {"p_min", {"p_min"}},
      {"threads", {"threads"}},
      {"mtp_n_max", {"n_max"}},
      {"mtp_n_min", {"n_min"}},
      {"n", {"n_max"}},
      {"batch_size", {"batch"}},
      {"ubatch_size", {"ubatch"}},
      {"b/u", {"batch", "ubatch"}},
      {"batch/ubatch", {"batch", "ubatch"}},
      {"poll", {"poll"}},
      {"mtp_draft_threads", {"draft threads"}},
      {"mtp_draft_threads_batch", {"draft threads batch"}},
      {"spec-draft-threads-batch", {"draft threads batch"}},
  };
  const auto known = names.find(key);
  if (known == names.end()) {
    settings[key] = value;  // a change of its own, and a recipe of its own
    return;
  }
  for (const std::string& name : known->second) settings[name] = plain_number(value);
}

bool says_no_change(const std::string& item) {
  for (const std::string& word : split(item, " -")) {
    if (word == "control" || word == "repeat" || word == "unset" || word == "off") return true;
  }
  return item == "same build";
}

struct Read {
  std::string family;
  Settings settings;
  std::string left_over;  // of name and text
  bool named_control = false;
};

Read read_row(const TableRow& row) {
  Read out;
  const std::string run = lower(row.run), change = lower(row.change);
  out.named_control =
      run.find("control") != std::string::npos || change.find("control") != std::string::npos;
  const std::vector<std::string> tokens = split(run, "-");
  const auto has = [&](std::string_view word) {
    return std::find(tokens.begin(), tokens.end(), word) != tokens.end();
  };
  const Family* family = nullptr;
  for (const Family& candidate : families()) {
    if (std::all_of(candidate.words.begin(), candidate.words.end(), has)) {
      family = &candidate;
      out.family = candidate.name;
      break;
    }
  }
  std::vector<std::string> left;
  for (const std::string& token : tokens) {
    if (setting_in_name(token, out.settings) || neutral_in_name(token)) continue;
    if (family &&
        std::find(family->words.begin(), family->words.end(), token) != family->words.end()) {
      continue;
    }
    if (!out.named_control) left.push_back(token);
  }
  const auto known_value = [&](const std::string& word) {
    const std::string value = plain_number(word);
    return std::any_of(out.settings.begin(), out.settings.end(),
                       [&](const auto& setting) { return setting.second == value; });
  };
  for (const std::string& item : split(change, ",")) {
    bool quiet = says_no_change(item);
    for (const Family& known : families()) {
      for (const std::string_view phrase : known.phrases) {
        quiet |= family == &known && item.find(phrase) != std::string::npos;
      }
    }
    for (const std::string& word : split(item, " ")) {
      const size_t equals = word.find('=');
      if (equals != std::string::npos && equals > 0 && equals + 1 < word.size()) {
        // What makes the family is no change within it.
        bool of_family = false;
        if (family) {
          for (const std::string_view phrase : family->phrases) of_family |= word == phrase;
        }
        if (!of_family) assignment(word.substr(0, equals), word.substr(equals + 1), out.settings);
      } else if (word == "q4_0-mtp") {
        out.settings["draft"] = "q4_0";
      } else if (!quiet &&
                 !(std::isdigit(static_cast<unsigned char>(word[0])) && known_value(word))) {
        left.push_back(word);
      }
    }
  }
  out.left_over = fmt::format("{}", fmt::join(left, " "));
  return out;
}

}  // namespace

bool is_run_table(const runs::Csv& csv) {
  for (const char* name : {"batch", "run", "change", "fresh_tok_s", "verdict"}) {
    if (csv.column(name) < 0) return false;
  }
  return true;
}

Table read_run_table(const runs::Csv& csv, std::string_view source) {
  Table out;
  out.skipped = csv.skipped;
  std::string time;
  const auto column = [&](const char* name) { return csv.column(name); };
  const int batch = column("batch"), run = column("run"), gpu = column("gpu");
  const int change = column("change"), rate = column("fresh_tok_s"), verdict = column("verdict");
  for (const runs::CsvRecord& record : csv.records) {
    ++out.total;
    const auto field = [&](int at) {
      return at < 0 ? std::string() : record.fields[static_cast<size_t>(at)];
    };
    TableRow row;
    row.line = record.line;
    row.batch = field(batch), row.run = field(run), row.gpu = field(gpu);
    row.change = field(change), row.verdict = field(verdict);
    for (const std::string& token : split(row.run, "-")) {
      if (const std::string stamp = timestamp(token); !stamp.empty()) time = stamp;
    }
    row.time = time;
    const std::string text = field(rate);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), row.tok_s);
    const bool has_rate = error == std::errc() && end == text.data() + text.size() &&
                          std::isfinite(row.tok_s) && row.tok_s > 0;
    if (!has_rate || row.verdict == "invalid" || row.verdict == "diagnostic") {
      ++out.without_rate;
      continue;
    }
    out.rows.push_back(std::move(row));
  }
  if (out.rows.empty()) {
    throw Error(ExitCode::bad_file,
                fmt::format("{}: no row has a rate in fresh_tok_s", shorten(source)));
  }
  return out;
}

std::string Placement::recipe() const {
  std::string out = family;
  for (const auto& [key, value] : settings) out += fmt::format(", {} {}", key, value);
  return out;
}

std::vector<size_t> in_time(const Table& table) {
  std::vector<size_t> order(table.rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return table.rows[a].time < table.rows[b].time; });
  return order;
}

std::vector<Placement> place_rows(const Table& table) {
  std::vector<Placement> out(table.rows.size());
  // What every row has that doesn't say otherwise, until a promoted row does.
  Settings in_force = {{"batch", "1024"}, {"draft", "q4_0"}, {"n_max", "7"},
                       {"p_min", "0.14"}, {"threads", "8"},  {"ubatch", "1024"}};
  std::string promoted_family;
  for (const size_t i : in_time(table)) {
    const TableRow& row = table.rows[i];
    const Read read = read_row(row);
    Placement& placement = out[i];
    placement.named_control = read.named_control;
    placement.family = read.family;
    placement.settings = in_force;
    for (const auto& [key, value] : read.settings) placement.settings[key] = value;
    if (read.family.empty()) {
      placement.family = promoted_family;
      placement.inferred = true;
    }
    if (!read.left_over.empty()) {
      placement.why_not = read.left_over;
    } else if (placement.family.empty()) {
      placement.why_not = "no family in its name, and nothing promoted before it";
    } else {
      placement.placed = true;
    }
    if (row.verdict == "promoted") {
      if (!read.family.empty()) promoted_family = read.family;
      in_force = placement.settings;
    }
  }
  return out;
}

std::string_view grouping_rule() {
  return "A row is a named control when its run name or its change text has the word control. Its "
         "family "
         "is the one whose words its name has (selectedsoftmax+weightedsum, immediatecl1, "
         "rowargmax+safer, argmaxrows+guard, rowargmax+deferh), otherwise that of the last row "
         "promoted before it in time (marked inferred). Settings are read from the name (pmin0136, "
         "th8, "
         "b768u768, dtb36, unroll7) and the change (THREADS=8, MTP_P_MIN=0.136); those a row does "
         "not "
         "name are those of the last promoted row (before the first: 8 threads, p_min 0.14, n_max "
         "7, "
         "batch 1024, draft Q4_0). A row is placed when nothing else is left over in name and "
         "change but "
         "words for when, where and how often it ran; in a control's name other words are no "
         "change, and "
         "an item of a change with control, repeat, unset or off is none. Rows of one family and "
         "the same "
         "settings are one recipe.";
}

std::vector<Group> group_rows(const Table& table, const std::vector<Placement>& placements) {
  std::map<std::string, Group> by_recipe;
  for (const size_t i : in_time(table)) {
    const Placement& placement = placements[i];
    if (!placement.placed) continue;
    Group& group = by_recipe[placement.recipe()];
    group.recipe = placement.recipe();
    group.inferred |= placement.inferred;
    group.members.push_back(i);
    group.rates.push_back(table.rows[i].tok_s);
    group.named_controls += placement.named_control;
    group.is_control |= placement.named_control || table.rows[i].verdict == "promoted";
  }
  std::vector<Group> out;
  for (auto& [recipe, group] : by_recipe) out.push_back(std::move(group));
  std::stable_sort(out.begin(), out.end(), [](const Group& a, const Group& b) {
    return a.members.size() > b.members.size();
  });
  return out;
}

}  // namespace lockstep::lab::noise
