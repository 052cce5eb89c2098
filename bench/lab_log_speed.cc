// How fast lockstep lab log reads, and how much memory it takes: MB/s of one core (by its CPU time)
// on a generated log. bench_lab_log_speed [MB] [FILE]; 1000 MB unless told, FILE in the temporary
// folder.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "../tests/lab/log/generated_log.h"
#include "lab/log/analysis.h"

using namespace lockstep::lab::log;

int main(int argc, char** argv) {
  const int64_t megabytes = argc > 1 ? std::atoll(argv[1]) : 1000;
  const std::filesystem::path path =
      argc > 2 ? argv[2] : std::filesystem::temp_directory_path() / "lab_log_speed.log";
  if (megabytes < 1) return 2;
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (!file) return std::perror(path.c_str()), 4;
  std::string text;
  int64_t requests = 0;
  for (int64_t written = 0; written < megabytes * 1'000'000;) {
    text.clear();
    while (text.size() < 1 << 20) append_request(text, requests++);
    if (std::fwrite(text.data(), 1, text.size(), file) != text.size())
      return std::perror(path.c_str()), 4;
    written += static_cast<int64_t>(text.size());
  }
  if (std::fclose(file) != 0) return std::perror(path.c_str()), 4;
  for (int repeat = 0; repeat < 3; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t cpu = std::clock();
    const Analysis a = read_logs({&path, 1});
    const double cpu_s = static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC;
    const double wall_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const double mb = static_cast<double>(a.files[0].lines.bytes) / 1e6;
    fmt::print(
        "{:.0f} MB, {} lines, {} requests, {} contradictions: {:.2f} s of CPU = {:.0f} MB/s "
        "({:.2f} s of wall time), peak memory {:.0f} MB\n",
        mb, a.files[0].lines.lines, a.request_count, a.contradiction_count, cpu_s, mb / cpu_s,
        wall_s, static_cast<double>(usage.ru_maxrss) / 1000);
  }
  std::filesystem::remove(path);
}
