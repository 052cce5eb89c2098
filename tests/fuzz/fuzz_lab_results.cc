// Fuzzes the readers of result files, the CSV reader and the settings in texts and names. The first
// byte chooses what the rest is: a file as it is, or put into a frame that gets past the first
// door.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "lab/results/catalog.h"
#include "lab/csv/csv.h"
#include "lab/results/kinds.h"
#include "lab/results/reader.h"

using namespace lockstep;
using namespace lockstep::lab;

namespace {

uint64_t inputs = 0, read = 0, objects = 0;

void report() {
  std::fprintf(stderr, "fuzz_lab_results: %llu inputs, %llu were results, %llu objects\n",
               static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(read),
               static_cast<unsigned long long>(objects));
  // A run that reached nothing must not look like one that found nothing.
  if (inputs >= 100'000 && read < 100) {
    std::fprintf(stderr, "fuzz_lab_results: fewer than 100 results is no run\n");
    std::_Exit(1);
  }
}

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_lab_results: %s\n", what);
  std::abort();
}

void check_reading(const Reading& reading) {
  ++read;
  check(reading.artifact.size() == 64, "no artifact");
  check(!reading.format.empty(), "no format");
  std::set<std::string> ids = {reading.artifact};
  for (const Object& object : reading.objects) {
    ++objects;
    check(fault_of(object).empty(), "an object that its kind does not have");
    for (const Fact& fact : object.facts()) {
      check(clean_text(fact.value) == fact.value, "a value that is no clean text");
      check(fact.name.find('\n') == std::string::npos, "a newline in a name");
      check(fact.source.find('\n') == std::string::npos, "a newline in a source");
      if (fact.type == FactType::ref) check(ids.contains(fact.value), "a ref that leads nowhere");
      if (fact.type == FactType::real) check(fact.number().has_value(), "a number that is none");
    }
    ids.insert(object.id());
  }
  const Catalog catalog(reading);
  for (const auto& item : catalog.items()) (void)traits_of(catalog, item);
}

void settings(std::string_view text) {
  for (const auto& list : {settings_of_text(text), settings_of_run_name(text)}) {
    for (const Setting& setting : list) {
      check(canonical_key(setting.key) == setting.key, "a key that is not canonical");
      check(canonical_value(setting.value) == setting.value, "a value that is not canonical");
    }
    check(fingerprint(list).size() == 64, "no fingerprint");
  }
  (void)words_of_text(text);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::atexit(report);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ++inputs;
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string file(rest);
  switch (data[0] % 8) {
    case 0:
      break;
    case 1:
      file = "run,change,fresh_tok_s,verdict\n" + file;
      break;
    case 2:
      file =
          "batch,run,gpu,change,canary_pass,canary_total,fresh_tok_s,support_mean_tok_s,"
          "support_max_tok_s,wall_tok_s,ttft_s,verdict\n" +
          file;
      break;
    case 3:
      file = "build_commit,n_prompt,n_gen,avg_ns,avg_ts\n" + file;
      break;
    case 4:
      file = "{\"schema\":\"lockstep.lab.log/1\",\"lives\":[{}],\"requests\":[{" + file + "}]}";
      break;
    case 5:
      file = "{\"schema\":\"lockstep.run/1\",\"result\":{" + file + "}}";
      break;
    case 6:
      file = "{\"request_throughput\":1,\"model_id\":\"m\"," + file + "}";
      break;
    case 7:
      file = "[{\"build_commit\":\"x\",\"avg_ts\":1," + file + "}]";
      break;
  }
  try {
    check_reading(read_result("fuzz", file));
  } catch (const Error& error) {
    check(error.code() == ExitCode::bad_file, "a wrong file is not a bad file");
  }
  for (const CsvRow& row : read_csv(rest)) check(row.line >= 1, "a row without a line");
  settings(rest.substr(0, 2000));
  return 0;
}
