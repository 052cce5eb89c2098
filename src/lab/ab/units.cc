#include "lab/ab/units.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <set>

#include "lab/stats/effect.h"
#include "lab/stats/summary.h"

namespace lockstep::lab::ab {
namespace {

using runs::Row;

struct Block {
  std::map<std::string, std::vector<const Row*>> a, b;  // by prompt
  size_t place = 0;                                     // in A's file
};

std::map<std::string, Block> by_block(const runs::Runs& a, const runs::Runs& b) {
  std::map<std::string, Block> blocks;
  for (const Row& row : a.rows) {
    const auto [at, made] = blocks.try_emplace(row.block);
    if (made) at->second.place = blocks.size() - 1;

    at->second.a[row.prompt].push_back(&row);
  }
  for (const Row& row : b.rows) blocks[row.block].b[row.prompt].push_back(&row);
  return blocks;
}

// The median over rows of a log; nullopt where a row lacks it.
using Read = std::function<std::optional<double>(const Row&)>;
std::optional<double> median_log(const std::vector<const Row*>& rows, const Read& read) {
  std::vector<double> logs;
  for (const Row* row : rows) {
    const std::optional<double> value = read(*row);
    if (!value || *value <= 0) return std::nullopt;
    logs.push_back(std::log(*value));
  }
  return stats::median(logs);
}

std::optional<double> block_ratio(const Block& block, const Read& read) {
  std::vector<double> differences;
  std::vector<std::string> classes;
  for (const auto& [prompt, rows_a] : block.a) {
    const auto rows_b = block.b.find(prompt);
    const std::optional<double> a = median_log(rows_a, read), b = median_log(rows_b->second, read);
    if (!a || !b) return std::nullopt;
    differences.push_back(*b - *a);
    classes.push_back(rows_a.front()->prompt_class);
  }
  return stats::median_of_class_medians(differences, classes);
}

// Blocks that share a server are one unit: each block's representative.
std::vector<size_t> joined(const std::vector<const Block*>& blocks) {
  std::vector<size_t> parent(blocks.size());
  std::iota(parent.begin(), parent.end(), size_t{0});
  const auto root = [&](size_t i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
  };
  std::map<std::pair<bool, std::string>, size_t> first_block;  // of a server's life
  for (size_t i = 0; i < blocks.size(); ++i) {
    for (const bool second : {false, true}) {
      for (const auto& [prompt, rows] : second ? blocks[i]->b : blocks[i]->a) {
        for (const Row* row : rows) {
          const auto [at, made] = first_block.try_emplace({second, row->start}, i);
          if (made) continue;
          const size_t x = root(at->second), y = root(i);
          parent[std::max(x, y)] = std::min(x, y);
        }
      }
    }
  }
  for (size_t i = 0; i < parent.size(); ++i) parent[i] = root(i);
  return parent;
}

}  // namespace

Paired pair_blocks(const runs::Runs& a, const runs::Runs& b) {
  Paired out;
  const std::map<std::string, Block> all = by_block(a, b);
  std::vector<const Block*> blocks;
  std::vector<std::string> names;
  for (const auto& [name, block] : all) {
    if (block.a.empty() || block.b.empty()) {
      ++out.unpaired_blocks;
      continue;
    }
    blocks.push_back(&block);
    names.push_back(name);
  }
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t x, size_t y) { return blocks[x]->place < blocks[y]->place; });
  std::vector<const Block*> in_order;
  for (const size_t i : order) in_order.push_back(blocks[i]);

  for (size_t i = 0; i < in_order.size(); ++i) {
    const Block& block = *in_order[i];
    const bool same = std::equal(block.a.begin(), block.a.end(), block.b.begin(), block.b.end(),
                                 [](const auto& x, const auto& y) { return x.first == y.first; });
    if (!same) {
      out.unequal_prompts = names[order[i]];
      return out;
    }
  }

  const Read rate = [](const Row& row) { return std::optional(row.tok_s); };
  const Read tokens = [](const Row& row) { return row.speed().tokens_per_step; };
  const Read ms = [](const Row& row) { return row.speed().ms_per_step; };
  const std::vector<size_t> unit_of = joined(in_order);
  std::map<size_t, std::vector<size_t>> members;  // by the first block
  for (size_t i = 0; i < in_order.size(); ++i) members[unit_of[i]].push_back(i);
  for (const auto& [first, of_unit] : members) {
    const auto mean_of = [&](const Read& read) -> std::optional<double> {
      double sum = 0;
      for (const size_t i : of_unit) {
        const std::optional<double> ratio = block_ratio(*in_order[i], read);
        if (!ratio) return std::nullopt;
        sum += *ratio;
      }
      return sum / static_cast<double>(of_unit.size());
    };
    Unit unit;
    unit.name = names[order[first]];
    unit.log_ratio = *mean_of(rate);  // a row without a rate was never read
    unit.tokens_per_step = mean_of(tokens);
    unit.ms_per_step = mean_of(ms);
    out.merged_blocks += static_cast<int64_t>(of_unit.size()) - 1;
    out.units.push_back(std::move(unit));
  }
  return out;
}

}  // namespace lockstep::lab::ab
