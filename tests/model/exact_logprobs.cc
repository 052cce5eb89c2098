// exact_logprobs MODEL.gguf < golden: for every "llama.cpp POSITION id:logprob …" line of a golden
// file prints the line, and after it "exact POSITION id:logprob …" with the binary64 forward pass's
// values for the same ids. Used by golden/make_golden.py.
#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "forward64.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc != 2) {
    std::cerr << "use: exact_logprobs MODEL.gguf < golden\n";
    return 2;
  }
  std::vector<std::vector<double>> logits;
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream in(line);
    std::string kind;
    in >> kind;
    std::cout << line << '\n';
    if (kind == "ids") {
      std::vector<int32_t> ids;
      for (int32_t id; in >> id;) ids.push_back(id);
      logits = model::forward64(gguf::File::open(argv[1]), ids);
    } else if (kind == "llama.cpp") {
      size_t position = 0;
      in >> position;
      const std::vector<double>& row = logits[position];
      double most = row[0], sum = 0;
      for (const double value : row) most = std::max(most, value);
      for (const double value : row) sum += std::exp(value - most);
      std::cout << "exact " << position;
      for (std::string pair; in >> pair;) {
        const auto id = static_cast<size_t>(std::stol(pair));
        std::cout << fmt::format(" {}:{:.5f}", id, row[id] - most - std::log(sum));
      }
      std::cout << '\n';
    }
  }
}
