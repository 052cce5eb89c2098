#include "lab/runs/runs.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"
#include "lab/runs/table.h"

namespace lockstep::lab::runs {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMostBytes = 64ull << 20;  // a field of two bytes takes some thirty once read
constexpr size_t kMostRows = 1'000'000;
constexpr size_t kMostNameBytes = 512;
constexpr std::string_view kSchema = "lockstep.lab.runs/1";

[[noreturn]] void bad(std::string_view source, std::string_view what) {
  throw Error(ExitCode::bad_file, fmt::format("{}: {}", shorten(source), what));
}

// Reads JSON values, naming the place of one that is not what it should be.
class Place {
 public:
  Place(std::string_view source, const Json& value, std::string path)
      : source_(source), value_(value), path_(std::move(path)) {}

  const Json& value() const { return value_; }
  [[noreturn]] void wrong(std::string_view what) const {
    bad(source_, fmt::format("{}: {}", path_.empty() ? "the document" : escape(path_, 200), what));
  }
  Place at(const char* key, Json::value_t type) const {
    const auto found = value_.find(key);
    if (found == value_.end()) wrong(fmt::format("has no \"{}\"", key));
    Place out(source_, *found, path_.empty() ? key : fmt::format("{}.{}", path_, key));
    if (found->type() != type) {
      out.wrong(type == Json::value_t::array ? "is not a list" : "is not an object");
    }
    return out;
  }
  Place element(size_t i) const {
    Place out(source_, value_[i], fmt::format("{}[{}]", path_, i));
    if (!value_[i].is_object()) out.wrong("is not an object");
    return out;
  }
  // A name; numbers are taken as one too. "" where it is not there.
  std::string name(const char* key) const {
    const auto found = value_.find(key);
    if (found == value_.end() || found->is_null()) return "";
    if (found->is_number_integer()) return std::to_string(found->get<int64_t>());
    if (!found->is_string()) wrong(fmt::format("\"{}\" is not a text", key));
    const auto& text = found->get_ref<const std::string&>();
    if (text.size() > kMostNameBytes)
      wrong(fmt::format("\"{}\" is longer than {} bytes", key, kMostNameBytes));
    return text;
  }
  std::optional<double> number(const char* key, bool above_zero) const {
    const auto found = value_.find(key);
    if (found == value_.end() || found->is_null()) return std::nullopt;
    if (!found->is_number()) wrong(fmt::format("\"{}\" is not a number", key));
    const double x = found->get<double>();
    if (!std::isfinite(x) || (above_zero ? x <= 0 : x < 0) || x > 1e15) {
      wrong(fmt::format("\"{}\" is {}", key,
                        above_zero ? "not a number above 0" : "below 0 or far too large"));
    }
    return x;
  }
  std::optional<int64_t> count(const char* key) const {
    const std::optional<double> x = number(key, false);
    if (!x) return std::nullopt;
    if (*x != std::floor(*x)) wrong(fmt::format("\"{}\" is not a whole number", key));
    return static_cast<int64_t>(*x);
  }

 private:
  std::string_view source_;
  const Json& value_;
  std::string path_;
};

// The rate that decode_ms and the tokens give: tokens after the first over the time after it.
std::optional<double> rate_of(const Row& row) {
  if (!row.decode_ms || !row.generated_tokens || *row.generated_tokens < 2 || *row.decode_ms <= 0) {
    return std::nullopt;
  }
  return static_cast<double>(*row.generated_tokens - 1) / *row.decode_ms * 1000;
}

Row read_row(const Place& place) {
  Row row;
  row.prompt = place.name("prompt");
  row.prompt_class = place.name("class");
  row.prompt_tokens = place.count("prompt_tokens");
  row.cached_tokens = place.count("cached_tokens");
  row.generated_tokens = place.count("generated_tokens");
  row.decode_ms = place.number("decode_ms", true);
  row.token_sha256 = place.name("token_sha256");
  const auto draft = place.value().find("draft");
  if (draft != place.value().end() && !draft->is_null()) {
    const Place inner = place.at("draft", Json::value_t::object);
    row.steps = inner.count("steps");
    row.drafted = inner.count("drafted");
    row.accepted = inner.count("accepted");
  }
  const std::optional<double> rate = place.number("decode_tok_s", true);
  const std::optional<double> own = rate ? rate : rate_of(row);
  if (!own) place.wrong("has neither \"decode_tok_s\" nor \"decode_ms\" with \"generated_tokens\"");
  row.tok_s = *own;
  return row;
}

template <typename T>
std::optional<T> parse(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '+')) text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

}  // namespace

stats::Speed Row::speed() const {
  stats::Speed out{tok_s, std::nullopt, std::nullopt};
  if (decode_ms && steps && *steps > 0) {
    out.ms_per_step = *decode_ms / static_cast<double>(*steps);
    out.tokens_per_step = tok_s * *out.ms_per_step / 1000;
  }
  return out;
}

Denominator denominator(const Row& row) {
  const std::optional<double> after = rate_of(row);
  if (!after) return Denominator::unknown;
  const double n = static_cast<double>(*row.generated_tokens);
  // Two digits after the point are what logs print of a rate of 100.
  const auto same = [&](double rate) { return std::abs(row.tok_s / rate - 1) < 2e-4; };
  const bool is_after = same(*after), is_all = same(*after * n / (n - 1));
  if (is_after && is_all) return Denominator::unknown;  // too many tokens to tell
  return is_after ? Denominator::after_first
         : is_all ? Denominator::all_tokens
                  : Denominator::other;
}

std::string_view denominator_name(Denominator denominator) {
  switch (denominator) {
    case Denominator::unknown:
      return "unknown";
    case Denominator::all_tokens:
      return "all tokens";
    case Denominator::after_first:
      return "tokens after the first";
    case Denominator::other:
      return "something else";
  }
  return "";
}

Runs parse_runs_json(std::string_view text, std::string_view source) {
  const Json document = Json::parse(text.begin(), text.end(), nullptr, false);
  if (document.is_discarded())
    bad(source, "is not JSON; a table of runs begins with a header line");
  if (!document.is_object()) bad(source, fmt::format("is not a {} object", kSchema));
  const Place top(source, document, "");
  const std::string schema = top.name("schema");
  if (schema != kSchema) {
    bad(source, fmt::format("its \"schema\" is \"{}\"; lab ab and lab noise read {}",
                            shorten(schema), kSchema));
  }
  Runs out;
  out.source = source;
  out.metric = top.name("metric");
  out.exactness = top.name("exactness");
  const std::string arm = top.name("arm");
  const Place blocks = top.at("blocks", Json::value_t::array);
  for (size_t b = 0; b < blocks.value().size(); ++b) {
    const Place block = blocks.element(b);
    const std::string block_name = block.name("block");
    const Place starts = block.at("starts", Json::value_t::array);
    for (size_t s = 0; s < starts.value().size(); ++s) {
      const Place start = starts.element(s);
      const std::string start_arm = start.name("arm"), start_name = start.name("start");
      const Place rows = start.at("rows", Json::value_t::array);
      for (size_t r = 0; r < rows.value().size(); ++r) {
        if (out.rows.size() >= kMostRows) bad(source, fmt::format("more than {} rows", kMostRows));
        const Place place = rows.element(r);
        Row row = read_row(place);
        row.block = block_name.empty() ? std::to_string(b + 1) : block_name;
        row.arm = start_arm.empty() ? arm : start_arm;
        row.start =
            start_name.empty() ? fmt::format("block {} start {}", b + 1, s + 1) : start_name;
        row.order = place.count("order").value_or(static_cast<int64_t>(r));
        if (row.prompt.empty()) row.prompt = fmt::format("row {}", r + 1);
        out.rows.push_back(std::move(row));
      }
    }
  }
  if (out.rows.empty()) bad(source, "has no rows");
  return out;
}

Runs parse_runs_csv(std::string_view text, std::string_view source) {
  const Csv csv = parse_csv(text, source);
  const auto column = [&](std::string_view name) { return csv.column(name); };
  const int tok_s = column("tok_s") >= 0 ? column("tok_s") : column("decode_tok_s");
  const int block = column("block"), arm = column("arm"), start = column("start");
  const int prompt = column("prompt"), prompt_class = column("class"), order = column("order");
  const int hash = column("token_sha256"), ms = column("decode_ms"), metric = column("metric");
  if (tok_s < 0 || block < 0 || start < 0) {
    bad(source,
        "has no columns block, start and tok_s; a table of runs has block,arm,start,prompt,tok_s "
        "(docs/lab-statistics.md)");
  }
  Runs out;
  out.source = source;
  out.skipped = csv.skipped;
  if (csv.skipped > 0) {
    out.first_skipped =
        fmt::format("line {}: not as many fields as the header", csv.first_skipped_line);
  }
  const auto skip = [&](int64_t line, std::string_view why) {
    if (++out.skipped == 1) out.first_skipped = fmt::format("line {}: {}", line, why);
  };
  const struct {
    const char* name;
    std::optional<int64_t> Row::*member;
  } counts[] = {{"prompt_tokens", &Row::prompt_tokens},
                {"cached_tokens", &Row::cached_tokens},
                {"generated_tokens", &Row::generated_tokens},
                {"steps", &Row::steps},
                {"drafted", &Row::drafted},
                {"accepted", &Row::accepted}};
  for (const CsvRecord& record : csv.records) {
    const auto field = [&](int at) {
      return at < 0 ? std::string() : record.fields[static_cast<size_t>(at)];
    };
    Row row;
    const std::optional<double> rate = parse<double>(field(tok_s));
    if (!rate || !std::isfinite(*rate) || *rate <= 0 || *rate > 1e15) {
      skip(record.line, "tok_s is not a number above 0");
      continue;
    }
    row.tok_s = *rate;
    row.block = field(block), row.arm = field(arm), row.start = field(start);
    row.prompt = field(prompt), row.prompt_class = field(prompt_class);
    row.token_sha256 = field(hash);
    if (row.block.empty() || row.start.empty()) {
      skip(record.line, "block or start is empty");
      continue;
    }
    if (std::max({row.block.size(), row.arm.size(), row.start.size(), row.prompt.size(),
                  row.prompt_class.size(), row.token_sha256.size()}) > kMostNameBytes) {
      skip(record.line, "a name is far too long");
      continue;
    }
    bool good = true;
    for (const auto& count : counts) {
      const std::string value = field(column(count.name));
      if (value.empty()) continue;
      const std::optional<int64_t> x = parse<int64_t>(value);
      good &= x && *x >= 0 && *x < 1'000'000'000'000;
      row.*(count.member) = x;
    }
    if (const std::string value = field(ms); !value.empty()) {
      row.decode_ms = parse<double>(value);
      good &= row.decode_ms && std::isfinite(*row.decode_ms) && *row.decode_ms > 0;
    }
    if (const std::string value = field(order); !value.empty()) {
      const std::optional<int64_t> x = parse<int64_t>(value);
      good &= x && *x >= 0;
      row.order = x.value_or(0);
    } else {
      for (auto before = out.rows.rbegin(); before != out.rows.rend(); ++before) {
        if (before->start != row.start || before->arm != row.arm) break;
        row.order = before->order + 1;
        break;
      }
    }
    if (!good) {
      skip(record.line, "a count or time is not a number, or below 0");
      continue;
    }
    if (metric >= 0) {
      const std::string& id = record.fields[static_cast<size_t>(metric)];
      if (!out.metric.empty() && id != out.metric) {
        bad(source,
            fmt::format("line {}: metric \"{}\" after \"{}\"; a comparison has one metric (V7)",
                        record.line, shorten(id), shorten(out.metric)));
      }
      out.metric = id;
    }
    if (row.prompt.empty()) row.prompt = fmt::format("row {}", row.order + 1);
    if (out.rows.size() >= kMostRows) bad(source, fmt::format("more than {} rows", kMostRows));
    out.rows.push_back(std::move(row));
  }
  if (out.rows.empty()) {
    bad(source, out.skipped > 0 ? fmt::format("none of its {} rows can be read; {}", out.skipped,
                                              out.first_skipped)
                                : "has a header and no rows");
  }
  return out;
}

Runs parse_runs(std::string_view text, std::string_view source) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && (text[first] == '{' || text[first] == '[')
             ? parse_runs_json(text, source)
             : parse_runs_csv(text, source);
}

std::string read_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  if (file.bytes().size() > kMostBytes) {
    bad(path.string(), fmt::format("is larger than {} MiB", kMostBytes >> 20));
  }
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace lockstep::lab::runs
