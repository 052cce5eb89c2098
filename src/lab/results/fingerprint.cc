#include "lab/results/fingerprint.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "lab/results/object.h"

namespace lockstep::lab {
namespace {

// One setting under all names that engines, launchers and tables give it. Names are compared
// without leading dashes, in lower case, '-' as '_'.
struct Names {
  std::string_view key;
  std::vector<std::string_view> others;
};

const std::vector<Names>& known_names() {
  static const std::vector<Names> names = {
      {"p_min",
       {"mtp_p_min", "pmin", "spec_draft_p_min", "draft_p_min", "llama_arg_draft_p_min",
        "llama_arg_spec_draft_p_min"}},
      {"p_split",
       {"mtp_p_split", "psplit", "spec_draft_p_split", "draft_p_split", "llama_arg_draft_p_split",
        "llama_arg_spec_draft_p_split"}},
      {"n_max",
       {"mtp_n_max", "nmax", "spec_draft_n_max", "draft_max", "draft_n", "draft",
        "llama_arg_draft_max", "llama_arg_spec_draft_n_max", "num_speculative_tokens"}},
      {"n_min",
       {"mtp_n_min", "nmin", "spec_draft_n_min", "draft_min", "draft_n_min", "llama_arg_draft_min",
        "llama_arg_spec_draft_n_min"}},
      {"threads", {"th", "t", "n_threads", "llama_arg_threads"}},
      {"threads_batch", {"tb", "n_threads_batch", "llama_arg_threads_batch"}},
      {"draft_threads", {"mtp_draft_threads", "spec_draft_threads", "td", "threads_draft"}},
      {"draft_threads_batch",
       {"mtp_draft_threads_batch", "spec_draft_threads_batch", "dtb", "tbd",
        "threads_batch_draft"}},
      {"batch", {"batch_size", "b", "n_batch", "llama_arg_batch"}},
      {"ubatch", {"ubatch_size", "ub", "n_ubatch", "llama_arg_ubatch"}},
      {"ctx_size", {"c", "n_ctx", "context", "max_model_len", "llama_arg_ctx_size"}},
      {"n_predict", {"n", "predict", "llama_arg_n_predict", "o"}},
      {"poll", {"llama_arg_poll"}},
      {"draft_poll", {"spec_draft_poll", "mtp_draft_poll", "poll_draft"}},
      {"unroll", {"direct_unroll", "mtp_direct_unroll"}},
      {"flash_attn", {"fa", "flash", "llama_arg_flash_attn"}},
      {"k_type", {"ctk", "cache_type_k", "type_k", "llama_arg_cache_type_k"}},
      {"v_type", {"ctv", "cache_type_v", "type_v", "llama_arg_cache_type_v"}},
      {"draft_k_type", {"ctkd", "cache_type_k_draft", "spec_draft_type_k"}},
      {"draft_v_type", {"ctvd", "cache_type_v_draft", "spec_draft_type_v"}},
      {"spec_type", {"llama_arg_spec_type"}},
      {"cache_ram", {"cram", "llama_arg_cache_ram"}},
      {"ctx_checkpoints", {"ctxcp", "swa_checkpoints"}},
      {"parallel", {"np", "n_parallel", "llama_arg_n_parallel"}},
      {"gpu_layers", {"ngl", "n_gpu_layers", "llama_arg_n_gpu_layers"}},
      {"immediate_commandlists",
       {"ur_l0_use_immediate_commandlists", "sycl_pi_level_zero_use_immediate_commandlists",
        "immediatecl"}},
  };
  return names;
}

// Names inside run names, where digits follow without a sign between them.
struct Compact {
  std::string_view prefix;
  std::string_view key;
  bool fraction;  // "0136" means 0.136
};
constexpr Compact kCompact[] = {
    {"pmin", "p_min", true},
    {"psplit", "p_split", true},
    {"th", "threads", false},
    {"dtb", "draft_threads_batch", false},
    {"poll", "poll", false},
    {"draftpoll", "draft_poll", false},
    {"n", "n_max", false},
    {"nmin", "n_min", false},
    {"unroll", "unroll", false},
    {"b", "batch", false},
    {"u", "ubatch", false},
    {"o", "n_predict", false},
    {"immediatecl", "immediate_commandlists", false},
};

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool is_known(std::string_view key) {
  const std::string canonical = canonical_key(key);
  return std::any_of(known_names().begin(), known_names().end(),
                     [&](const Names& names) { return names.key == canonical; });
}

// q8_0, Q4_K_M, f16, bf16: a name of a quantisation.
bool is_quant(std::string_view word) {
  const std::string w = lower(word);
  if (w == "f16" || w == "f32" || w == "bf16") return true;
  return w.size() >= 4 && w[0] == 'q' && std::isdigit(static_cast<unsigned char>(w[1])) &&
         w[2] == '_';
}

using Found = std::map<std::string, std::string>;

void put(Found& found, std::string_view key, std::string_view value) {
  const std::string name = canonical_key(key);
  if (!name.empty()) found[name] = canonical_value(value);
}

// "q8_0/f16": two types.
bool type_pair(std::string_view word, std::string& a, std::string& b) {
  const size_t slash = word.find('/');
  if (slash == std::string_view::npos) return false;
  a = word.substr(0, slash), b = word.substr(slash + 1);
  return is_quant(a) && is_quant(b);
}

// What starts at words[i] and how many words it takes; 0 where it is no setting.
size_t read_setting(const std::vector<std::string>& words, size_t i, Found& found) {
  const std::string& word = words[i];
  const std::string low = lower(word);
  const auto next = [&](size_t k) { return i + k < words.size() ? words[i + k] : std::string(); };
  std::string a, b;

  if (const size_t equals = word.find('='); equals != std::string::npos && equals > 0) {
    const std::string key = lower(word.substr(0, equals)), value = word.substr(equals + 1);
    // A list's comma and a sentence's full stop are no part of the value.
    if (value.empty()) return 0;
    if (key == "b/u" || key == "batch/ubatch") {
      put(found, "batch", value), put(found, "ubatch", value);
    } else if (std::all_of(key.begin(), key.end(),
                           [](char c) { return is_word(c) || c == '-' || c == '.'; })) {
      put(found, key == "n" ? "n_max" : key, value);
    } else {
      return 0;
    }
    return 1;
  }
  if (word.size() > 1 && word[0] == '-' && !read_number(word)) {
    const std::string value = next(1);
    if (value.empty() || (value[0] == '-' && !read_number(value))) {
      put(found, word, "1");
      return 1;
    }
    put(found, word, value);
    return 2;
  }
  if (low == "draft" && lower(next(1)) == "k/v" && type_pair(next(2), a, b)) {
    put(found, "draft_k_type", a), put(found, "draft_v_type", b);
    return 3;
  }
  if (low == "draft" && lower(next(1)) == "batch" && lower(next(2)) == "threads" &&
      read_number(next(3))) {
    put(found, "draft_threads_batch", next(3));
    return 4;
  }
  if (low == "direct" && lower(next(1)) == "unroll" && read_number(next(2))) {
    put(found, "unroll", next(2));
    return 3;
  }
  if (low.starts_with("direct-unroll") && read_number(low.substr(13))) {
    put(found, "unroll", low.substr(13));
    return 1;
  }
  // "on q8_0/f16 q8_0/q8_0": flash attention, the target's KV types, the draft's.
  if ((low == "on" || low == "off") && type_pair(next(1), a, b)) {
    put(found, "flash_attn", low), put(found, "k_type", a), put(found, "v_type", b);
    if (!type_pair(next(2), a, b)) return 2;
    put(found, "draft_k_type", a), put(found, "draft_v_type", b);
    return 3;
  }
  // "Q8_0 target / Q4_0 MTP", "Q4_K_M-MTP".
  if (is_quant(word) && lower(next(1)) == "target") {
    put(found, "target_quant", word);
    return 2;
  }
  if (is_quant(word) && lower(next(1)) == "mtp") {
    put(found, "draft_quant", word);
    return 2;
  }
  if (low.ends_with("-mtp") && is_quant(word.substr(0, word.size() - 4))) {
    put(found, "draft_quant", word.substr(0, word.size() - 4));
    return 1;
  }
  // "p_min 0.136": a known name and a number. One-letter names are words here.
  if (word.size() > 1 && is_known(word) && read_number(next(1))) {
    put(found, word, next(1));
    return 2;
  }
  return 0;
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto end_word = [&] {
    while (!word.empty() && (word.back() == '.' || word.back() == ':')) word.pop_back();
    if (!word.empty()) words.push_back(word);
    word.clear();
  };
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) || c == ',' || c == ';' || c == '"' ||
        c == '\'' || c == '(' || c == ')') {
      end_word();
    } else {
      word += c;
    }
  }
  end_word();
  return words;
}

std::vector<Setting> listed(const Found& found) {
  std::vector<Setting> settings;
  for (const auto& [key, value] : found) settings.push_back({key, value});
  return settings;
}

// "pmin0136", "b768u768": letters and digits in turn, every pair known. False otherwise.
bool read_compact(std::string_view token, Found& found) {
  Found here;
  while (!token.empty()) {
    const size_t digits = token.find_first_of("0123456789");
    if (digits == 0 || digits == std::string_view::npos) return false;
    const size_t end = std::min(token.find_first_not_of("0123456789", digits), token.size());
    const std::string_view prefix = token.substr(0, digits);
    std::string number(token.substr(digits, end - digits));
    token.remove_prefix(end);
    const auto* entry = std::find_if(std::begin(kCompact), std::end(kCompact),
                                     [&](const Compact& c) { return c.prefix == prefix; });
    if (entry == std::end(kCompact)) return false;
    if (entry->fraction) {
      if (number[0] != '0' || number.size() < 2) return false;
      number.insert(1, 1, '.');
    }
    put(here, entry->key, number);
  }
  if (here.empty()) return false;
  for (const auto& [key, value] : here) found[key] = value;
  return true;
}

}  // namespace

std::string folded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

std::string canonical_key(std::string_view key) {
  while (key.starts_with('-')) key.remove_prefix(1);
  std::string name = lower(key.substr(0, 200));
  for (char& c : name) {
    if (!is_word(c) && c != '.') c = '_';
  }
  for (const Names& names : known_names()) {
    if (names.key == name) return name;
    if (std::find(names.others.begin(), names.others.end(), name) != names.others.end()) {
      return std::string(names.key);
    }
  }
  return name;
}

std::string canonical_value(std::string_view value) {
  if (const auto number = read_number(value)) return shortest(*number);
  std::string low = lower(clean_text(value));
  // Cut between characters, so that the same again gives the same.
  for (size_t end = 1000; low.size() > 1000; --end) {
    if ((static_cast<uint8_t>(low[end]) & 0xC0) != 0x80) low.resize(end);
  }
  if (low == "on" || low == "true" || low == "yes" || low == "enabled") return "1";
  if (low == "off" || low == "false" || low == "no" || low == "disabled") return "0";
  return low;
}

std::vector<Setting> settings_of_text(std::string_view text) {
  Found found;
  const std::vector<std::string> words = split_words(text);
  for (size_t i = 0; i < words.size();) i += std::max<size_t>(1, read_setting(words, i, found));
  return listed(found);
}

std::vector<std::string> words_of_text(std::string_view text) {
  std::vector<std::string> left;
  Found ignored;
  const std::vector<std::string> words = split_words(text);
  for (size_t i = 0; i < words.size();) {
    const size_t taken = read_setting(words, i, ignored);
    if (taken == 0) {
      const std::string word = folded(words[i]);
      if (!word.empty()) left.push_back(word);
    }
    i += std::max<size_t>(1, taken);
  }
  return left;
}

std::vector<Setting> settings_of_run_name(std::string_view name) {
  Found found;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('-', begin), name.size());
    const std::string token = lower(name.substr(begin, end - begin));
    if (!read_compact(token, found) && token.starts_with("draftq") && token.size() >= 8) {
      // draftq4km: Q4_K_M; draftq40: Q4_0.
      std::string quant = "q";
      quant += token[6];
      for (const char c : token.substr(7)) quant += std::string("_") + c;
      put(found, "draft_quant", quant);
    }
    begin = end + 1;
  }
  return listed(found);
}

std::string fingerprint(const std::vector<Setting>& settings) {
  std::vector<Setting> sorted = settings;
  std::sort(sorted.begin(), sorted.end());
  std::string lines;
  for (const Setting& setting : sorted) lines += setting.key + "=" + setting.value + "\n";
  return text_sha256(lines);
}

}  // namespace lockstep::lab
