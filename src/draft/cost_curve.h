// What passes cost by their width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::draft {

// Milliseconds as a function that never falls, of an index 0 … size - 1, learned from samples of
// it: for each index the median of the last few, made monotone, with straight lines between them.
class CostCurve {
 public:
  // slope: of the cost at `first`, what a further index is taken to cost where nothing is known.
  CostCurve(int size, int first, double slope);

  void observe(int index, double ms);  // outside the curve, or not a time: ignored
  bool known() const { return observed_ > 0; }
  double at(int index) const;
  // No sample yet, or one alone, or none among the last kStale of the whole curve.
  bool uncertain(int index) const;
  // What an index costs at least: as much as the nearest one below that is not uncertain.
  double at_least(int index) const;

 private:
  static constexpr size_t kKept = 7;
  static constexpr int64_t kStale = 400;
  struct Point {
    std::vector<double> recent;  // a ring
    size_t next = 0;
    int64_t last = 0;  // value of observed_ at the latest sample
    double median = 0;
  };
  bool stale(const Point& point) const {
    return !point.recent.empty() && observed_ - point.last > kStale;
  }
  void fit();

  std::vector<Point> points_;
  std::vector<double> fitted_;
  int first_;
  double slope_;
  int64_t observed_ = 0;
};

}  // namespace lockstep::draft
