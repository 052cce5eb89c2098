// What `bench` runs: tests, each some passes of a known shape.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/op_bytes.h"

namespace lockstep::app {

enum class BenchKind : uint8_t {
  prompt,      // "pp": a prompt in passes of up to `batch` rows; the last row wants logits
  generation,  // "tg": one token a pass
  width,       // "w": one pass whose rows all want logits, forgotten afterwards (a draft rejected)
};

struct BenchTest {
  BenchKind kind = BenchKind::width;
  int64_t tokens = 0;
  int64_t depth = 0;  // positions remembered before it
  int64_t batch = 0;  // rows of a pass at most

  std::string_view kind_name() const;  // "pp", "tg", "w"
  std::string name() const;            // "pp512", and where depth > 0 "pp512 @ d4096"
  int64_t width() const;               // rows of its widest pass
  // Of one repetition, in order.
  std::vector<kernels::PassShape> passes(kernels::KvType k_type, kernels::KvType v_type) const;
};

struct BenchLists {
  std::vector<int64_t> prompts{512}, generations{128}, widths{1, 2, 4, 8, 16}, depths{0};
  int64_t batch = 512;
};

// All tests of each depth, prompts first; 0 in prompts and generations stands for none. Throws
// Error(bad_use) where there is no test, or one that needs more than `context` positions.
std::vector<BenchTest> make_bench_tests(const BenchLists& lists, int64_t context);

}  // namespace lockstep::app
