// Fuzzes what the lab reads of runs: JSON, CSV, and tables without a recipe column; what was read
// is judged and studied.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "lab/ab/ab.h"
#include "lab/noise/noise.h"
#include "lab/runs/table.h"
#include "lab/runs/runs.h"

using namespace lockstep;
using namespace lockstep::lab;

namespace {

uint64_t inputs = 0, read = 0, judged = 0, tables = 0;

void report() {
  std::fprintf(stderr, "fuzz_lab_runs: %llu inputs, %llu were read, %llu judged, %llu tables\n",
               static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(read),
               static_cast<unsigned long long>(judged), static_cast<unsigned long long>(tables));
  if (inputs >= 100000 && read < 100) {
    std::fprintf(stderr, "fuzz_lab_runs: fewer than 100 read is no run\n");
    std::_Exit(1);
  }
}

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_lab_runs: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::atexit(report);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ++inputs;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const runs::Csv csv = runs::parse_csv(text, "fuzz");
    for (const runs::CsvRecord& record : csv.records) {
      check(record.fields.size() == csv.header.size(), "a record has another width");
    }
    if (noise::is_run_table(csv)) {
      noise::Table table = noise::read_run_table(csv, "fuzz");
      const size_t rows = table.rows.size();
      if (rows > 40) return 0;  // permutations take their time
      const noise::TableReport study = noise::study_table(std::move(table), {}, {});
      check(study.placements.size() == rows, "a row was lost");
      ++tables;
    }
  } catch (const Error& error) {
    check(error.code() == ExitCode::bad_file, "a bad table is not a bad file");
  }
  try {
    const runs::Runs rows = runs::parse_runs(text, "fuzz");
    ++read;
    check(!rows.rows.empty(), "nothing was read, and not said");
    for (const runs::Row& row : rows.rows) check(row.tok_s > 0, "a rate is not above 0");
    if (rows.rows.size() > 60) return 0;
    const auto [a, b] = ab::split_arms(rows);
    for (const ab::Method method :
         {ab::Method::signed_rank, ab::Method::group_sequential, ab::Method::always_valid}) {
      ab::Options options;
      options.method = method;
      options.looks = {2, 6};
      options.no_worse_margin = 0.005;
      const ab::Result result = ab::judge(a, b, options);
      check(result.verdict == ab::Verdict::better || result.verdict == ab::Verdict::not_better ||
                !result.reasons.empty(),
            "no verdict and no reason");
    }
    ++judged;
    noise::study_runs({&rows, 1}, {});
  } catch (const Error& error) {
    check(error.code() == ExitCode::bad_file || error.code() == ExitCode::bad_use,
          "bad runs are not a bad file");
  }
  return 0;
}
