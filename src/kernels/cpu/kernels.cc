#include "kernels/cpu/kernels.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/backend.h"
#include "kernels/cpu/tiles/amx_table.h"

namespace lockstep::kernels {

namespace scalar {
extern const CpuKernels kTable;
}
namespace scalar_v3 {
extern const CpuKernels kTable;
}
namespace avx2 {
extern const CpuKernels kTable;
}
namespace avx512 {
extern const CpuKernels kTable;
}
namespace amx {
namespace {

// The AVX-512 table with its own products.
const CpuKernels& table() {
  static const CpuKernels with_amx = [] {
    CpuKernels table = avx512::kTable;
    table.isa = "amx";
    table.rows_together = rows_together;
    table.matmul_quantized = matmul_quantized;
    return table;
  }();
  return with_amx;
}

// Linux gives a process the tile registers' 8 KiB of state when it asks (arch_prctl(2)).
bool may_use_tiles() {
  constexpr long kAskForState = 0x1023, kTileData = 18;
  static const bool may = syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
  return may;
}

bool has_int8_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  constexpr unsigned kTiles = 1u << 24, kInt8 = 1u << 25;
  return (d & kTiles) != 0 && (d & kInt8) != 0;
}

}  // namespace
}  // namespace amx

std::span<const CpuKernels* const> all_cpu_kernels() {
  static const CpuKernels* const kAll[] = {&scalar::kTable, &scalar_v3::kTable, &avx2::kTable,
                                           &avx512::kTable, &amx::table()};
  return kAll;
}

bool cpu_can_run(const CpuKernels& kernels, std::string* missing) {
  if (&kernels == &scalar::kTable) return true;
  std::string lacking;
  const auto need = [&](bool has, const char* feature) {
    if (!has) lacking += lacking.empty() ? feature : std::string(", ") + feature;
  };
  __builtin_cpu_init();
  need(__builtin_cpu_supports("avx2"), "avx2");
  need(__builtin_cpu_supports("fma"), "fma");
  need(__builtin_cpu_supports("bmi"), "bmi");
  need(__builtin_cpu_supports("bmi2"), "bmi2");
  need(__builtin_cpu_supports("f16c"), "f16c");
  need(__builtin_cpu_supports("lzcnt"), "lzcnt");
  need(__builtin_cpu_supports("movbe"), "movbe");
  const bool amx = &kernels == &amx::table();
  if (&kernels == &avx512::kTable || amx) {
    need(__builtin_cpu_supports("avx512f"), "avx512f");
    need(__builtin_cpu_supports("avx512bw"), "avx512bw");
    need(__builtin_cpu_supports("avx512cd"), "avx512cd");
    need(__builtin_cpu_supports("avx512dq"), "avx512dq");
    need(__builtin_cpu_supports("avx512vl"), "avx512vl");
    need(__builtin_cpu_supports("avx512vnni"), "avx512vnni");
  }
  if (amx) {
    need(amx::has_int8_tiles(), "amx-int8");
    if (lacking.empty()) need(amx::may_use_tiles(), "the system's leave to use AMX");
  }
  if (missing) *missing = lacking;
  return lacking.empty();
}

std::vector<std::string> cpu_isas() {
  std::vector<std::string> names;
  for (const CpuKernels* kernels : all_cpu_kernels()) {
    if (cpu_can_run(*kernels)) names.emplace_back(kernels->isa);
  }
  return names;
}

const CpuKernels& select_cpu_kernels(std::string_view isa) {
  const auto all = all_cpu_kernels();
  std::string names;
  for (size_t i = all.size(); i-- > 0;) {
    std::string missing;
    const bool can_run = cpu_can_run(*all[i], &missing);
    if (isa == all[i]->isa && !can_run) {
      throw Error(ExitCode::bad_use, "this CPU can't run the " + std::string(isa) +
                                         " kernels: it lacks " + missing +
                                         "; leave --isa out, or name another");
    }
    if (can_run && (isa.empty() || isa == all[i]->isa)) return *all[i];
    names += (names.empty() ? "" : ", ") + std::string(all[i]->isa);
  }
  throw Error(ExitCode::bad_use,
              "there are no \"" + shorten(isa) + "\" kernels; this build has " + names);
}

}  // namespace lockstep::kernels
