// Running a kernel as any team would: its items cut at random places, the pieces in random order.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "random_data.h"

namespace lockstep::kernels::test {

// Calls run(Range) for every piece of a random partition of [0, items).
template <typename Function>
void in_pieces(Random& random, int64_t items, Function&& run) {
  std::vector<int64_t> cuts = {0, items};
  for (int64_t i = random.below(7); i > 0 && items > 0; --i)
    cuts.push_back(random.below(items + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<Range> pieces;
  for (size_t i = 1; i < cuts.size(); ++i) pieces.push_back({cuts[i - 1], cuts[i]});
  for (size_t i = pieces.size(); i > 1; --i) {
    std::swap(pieces[i - 1], pieces[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
  for (const Range& piece : pieces) run(piece);
}

// The instruction sets of this build that this CPU can run.
inline std::vector<const CpuKernels*> usable_kernels() {
  std::vector<const CpuKernels*> usable;
  for (const CpuKernels* kernels : all_cpu_kernels()) {
    if (cpu_can_run(*kernels)) usable.push_back(kernels);
  }
  return usable;
}

inline const std::vector<int64_t>& matrix_widths() {
  static const std::vector<int64_t> widths = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,  11,  12,
                                              13, 14, 15, 16, 17, 31, 32, 33, 64, 100, 256, 512};
  return widths;
}

template <typename T>
bool same_bits(const T* a, const T* b, int64_t n) {
  return std::memcmp(a, b, static_cast<size_t>(n) * sizeof(T)) == 0;
}
template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && same_bits(a.data(), b.data(), static_cast<int64_t>(a.size()));
}

// What a test compared, printed when it ends.
class Tally {
 public:
  explicit Tally(std::string name) : name_(std::move(name)) {}
  ~Tally() {
    std::printf("[ matrix   ] %s: %lld comparisons, %lld elements\n", name_.c_str(),
                static_cast<long long>(comparisons_), static_cast<long long>(elements_));
  }
  void count(int64_t elements) {
    ++comparisons_;
    elements_ += elements;
  }

 private:
  std::string name_;
  int64_t comparisons_ = 0, elements_ = 0;
};

// A deliberately wrong variant, which the comparison must see.
class Control {
 public:
  explicit Control(std::string name) : name_(std::move(name)) {}
  void trial(bool differs) {
    ++trials_;
    seen_ += differs;
  }
  // Prints, and says whether it was seen in at least the given share of the trials.
  bool seen(double share) const {
    std::printf("[ control  ] %s: seen in %lld of %lld\n", name_.c_str(),
                static_cast<long long>(seen_), static_cast<long long>(trials_));
    return trials_ > 0 && static_cast<double>(seen_) >= share * static_cast<double>(trials_);
  }

 private:
  std::string name_;
  int64_t trials_ = 0, seen_ = 0;
};

}  // namespace lockstep::kernels::test
