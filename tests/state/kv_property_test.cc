// The property of state: any order of append, commit, truncate, snapshot and restore leaves what
// having appended only the accepted rows leaves. Rows are random bytes; the expectation is a plain
// list of accepted rows that knows nothing of pages.
//
// The same program is linked against deliberately broken copies of kv_cache.cc (see
// CMakeLists.txt); there LOCKSTEP_EXPECT_CAUGHT is the name of the fault, and finding nothing is
// the failure.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "state/kv_cache.h"

namespace lockstep::state {
namespace {

using kernels::kPagePositions;
using kernels::kv_row_bytes;

struct Config {
  std::string name;
  KvSpec spec;
};

// One accepted position: for each layer K then V, heads ascending.
using Row = std::vector<std::byte>;

struct Mismatch : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void require(bool condition, const std::string& what) {
  if (!condition) throw Mismatch(what);
}

int64_t first_visible(const KvLayerSpec& layer, int64_t size) {
  return layer.window > 0 ? std::max<int64_t>(0, size - layer.window + 1) : 0;
}

// Offset of a layer's K (side 0) or V (side 1) in a Row, and the bytes of one head there.
struct Place {
  int64_t offset = 0, row_bytes = 0;
};
Place place(const KvSpec& spec, size_t layer, int side) {
  Place result;
  for (size_t l = 0; l <= layer; ++l) {
    for (int s = 0; s < 2; ++s) {
      result.row_bytes = kv_row_bytes(s == 0 ? spec.k_type : spec.v_type, spec.layers[l].head_dim);
      if (l == layer && s == side) return result;
      result.offset += spec.layers[l].n_head_kv * result.row_bytes;
    }
  }
  throw std::logic_error("no such layer");
}

void write_row(const KvSpec& spec, std::span<const KvLayerView> views, int64_t position,
               const Row& row) {
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    for (int side = 0; side < 2; ++side) {
      const Place at = place(spec, l, side);
      std::byte* page =
          (side == 0 ? views[l].k_pages : views[l].v_pages)[position / kPagePositions];
      require(page != nullptr, "append left out a page");
      for (int64_t head = 0; head < spec.layers[l].n_head_kv; ++head) {
        std::memcpy(page + (head * kPagePositions + position % kPagePositions) * at.row_bytes,
                    row.data() + at.offset + head * at.row_bytes,
                    static_cast<size_t>(at.row_bytes));
      }
    }
  }
}

struct Sequence {
  KvCache cache;
  std::vector<Row> accepted;
  // Per layer: positions below are gone for good (whole pages left behind by the window).
  std::vector<int64_t> gone;

  Sequence(const KvSpec& spec, const std::shared_ptr<PagePool>& pool)
      : cache(spec, pool), gone(spec.layers.size(), 0) {}

  void after_commit() {
    const KvSpec& spec = cache.spec();
    const auto size = static_cast<int64_t>(accepted.size());
    for (size_t l = 0; l < gone.size(); ++l) {
      const int64_t page = first_visible(spec.layers[l], size) / kPagePositions;
      gone[l] = std::max(gone[l], page * kPagePositions);
    }
  }

  int64_t expected_reusable(int64_t wanted) const {
    wanted = std::min(wanted, static_cast<int64_t>(accepted.size()));
    for (size_t l = 0; l < gone.size(); ++l) {
      if (wanted > 0 && first_visible(cache.spec().layers[l], wanted) < gone[l]) return 0;
    }
    return wanted;
  }
};

Digest expected_hash(const KvSpec& spec, const std::vector<Row>& accepted) {
  Sha256 hash;
  const auto size = static_cast<int64_t>(accepted.size());
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    for (int side = 0; side < 2; ++side) {
      const Place at = place(spec, l, side);
      for (int64_t p = first_visible(spec.layers[l], size); p < size; ++p) {
        hash.update(std::span(accepted[static_cast<size_t>(p)])
                        .subspan(static_cast<size_t>(at.offset),
                                 static_cast<size_t>(spec.layers[l].n_head_kv * at.row_bytes)));
      }
    }
  }
  return hash.finish();
}

Digest expected_position_hash(const KvSpec& spec, const std::vector<Row>& accepted, int64_t p) {
  Sha256 hash;
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    if (p < first_visible(spec.layers[l], static_cast<int64_t>(accepted.size()))) continue;
    for (int side = 0; side < 2; ++side) {
      const Place at = place(spec, l, side);
      hash.update(std::span(accepted[static_cast<size_t>(p)])
                      .subspan(static_cast<size_t>(at.offset),
                               static_cast<size_t>(spec.layers[l].n_head_kv * at.row_bytes)));
    }
  }
  return hash.finish();
}

// Hashes and counts; with `bytes` also every byte of every page a later row can see, rows not yet
// written included (they must hold the poison), against a cache that took the accepted rows in one
// append. That needs an append, which hides what a truncate left behind, so not every check may do
// it.
void check(Sequence& sequence, bool bytes) {
  const KvSpec& spec = sequence.cache.spec();
  const auto size = static_cast<int64_t>(sequence.accepted.size());
  require(sequence.cache.size() == size, "size differs");
  require(sequence.cache.hash() == expected_hash(spec, sequence.accepted), "hash differs");
  for (int64_t p = std::max<int64_t>(0, size - 3); p < size; ++p) {
    require(sequence.cache.hash_position(p) == expected_position_hash(spec, sequence.accepted, p),
            "hash of position " + std::to_string(p) + " differs");
  }
  int64_t pages = 0;
  for (const int64_t gone : sequence.gone) {
    pages += 2 * ((size + kPagePositions - 1) / kPagePositions - gone / kPagePositions);
  }
  require(sequence.cache.pages_in_use() == pages, "pages in use differ");
  if (!bytes || size == spec.context) return;

  KvCache plain(spec, nullptr);
  if (size > 0) {
    const auto views = plain.append(size);
    for (int64_t p = 0; p < size; ++p) {
      write_row(spec, views, p, sequence.accepted[static_cast<size_t>(p)]);
    }
    plain.commit(size);
  }
  require(sequence.cache.hash() == plain.hash(), "hash differs from a plain cache's");

  const auto got = sequence.cache.append(1);
  const auto want = plain.append(1);
  for (size_t l = 0; l < spec.layers.size(); ++l) {
    const KvLayerSpec& layer = spec.layers[l];
    for (int side = 0; side < 2; ++side) {
      const auto page_bytes =
          static_cast<size_t>(layer.n_head_kv * kPagePositions * place(spec, l, side).row_bytes);
      const int64_t visible = first_visible(layer, size) / kPagePositions;
      require(got[l].n_pages == want[l].n_pages, "number of pages differs");
      for (int64_t page = 0; page < got[l].n_pages; ++page) {
        const std::byte* a = (side == 0 ? got[l].k_pages : got[l].v_pages)[page];
        const std::byte* b = (side == 0 ? want[l].k_pages : want[l].v_pages)[page];
        if (page < visible) {
          require(a == nullptr, "a page left behind by the window was kept");
        } else {
          require(a != nullptr && b != nullptr, "a visible page is missing");
          require(std::memcmp(a, b, page_bytes) == 0, "bytes of a page differ");
        }
      }
    }
  }
  sequence.cache.commit(0);
}

struct Saved {
  std::shared_ptr<const KvCache::Snapshot> snapshot;
  std::vector<Row> accepted;
  std::vector<int64_t> gone;
};

struct Counts {
  int64_t sequences = 0, operations = 0, rows_appended = 0, rows_rejected = 0, truncates = 0,
          snapshots = 0, restores = 0, checks = 0;
};

// Throws Mismatch, or whatever a broken cache throws.
void run_sequence(const Config& config, uint64_t seed, Counts& counts) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  const auto pool = make_page_pool(0);
  const auto row_size = static_cast<size_t>(bytes_per_position(config.spec));
  {
    // Two sequences over one pool, as a session and its restored twin.
    std::vector<Sequence> sequences;
    sequences.emplace_back(config.spec, pool);
    sequences.emplace_back(config.spec, pool);
    std::vector<Saved> saved;

    for (int step = 0; step < 60; ++step) {
      Sequence& sequence = sequences[static_cast<size_t>(below(4) == 0)];
      const auto size = static_cast<int64_t>(sequence.accepted.size());
      ++counts.operations;
      const int64_t choice = below(23);
      if (choice < 12) {
        const int64_t room = config.spec.context - size;
        const int64_t wanted = below(3) == 0 ? 1 + below(150) : 1 + below(9);
        const int64_t rows = std::min(room, wanted);
        if (rows == 0) continue;
        const int64_t kept = below(3) == 0 ? rows : below(rows + 1);
        std::vector<Row> fresh(static_cast<size_t>(rows), Row(row_size));
        for (Row& row : fresh) {
          for (std::byte& byte : row) byte = static_cast<std::byte>(random());
        }
        const auto views = sequence.cache.append(rows);
        for (int64_t i = 0; i < rows; ++i) {
          write_row(config.spec, views, size + i, fresh[static_cast<size_t>(i)]);
        }
        sequence.cache.commit(kept);
        sequence.accepted.insert(sequence.accepted.end(), fresh.begin(), fresh.begin() + kept);
        sequence.after_commit();
        counts.rows_appended += rows;
        counts.rows_rejected += rows - kept;
      } else if (choice < 15) {
        // Mostly a short way back, sometimes anywhere, sometimes right after an uncommitted append.
        const int64_t wanted =
            below(3) == 0 ? below(size + 1) : std::max<int64_t>(0, size - below(40));
        const int64_t position = sequence.cache.reusable(wanted);
        require(position == sequence.expected_reusable(wanted), "reusable differs");
        if (below(4) == 0 && size < config.spec.context) {
          const auto views = sequence.cache.append(1);
          write_row(config.spec, views, size, Row(row_size, std::byte{0x55}));
        }
        sequence.cache.truncate(position);
        sequence.accepted.resize(static_cast<size_t>(position));
        if (position == 0) std::fill(sequence.gone.begin(), sequence.gone.end(), 0);
        ++counts.truncates;
      } else if (choice < 17) {
        saved.push_back({sequence.cache.snapshot(), sequence.accepted, sequence.gone});
        ++counts.snapshots;
      } else if (choice < 19) {
        if (saved.empty()) continue;
        const Saved& from = saved[static_cast<size_t>(below(static_cast<int64_t>(saved.size())))];
        sequence.cache.restore(from.snapshot);
        sequence.accepted = from.accepted;
        sequence.gone = from.gone;
        ++counts.restores;
      } else if (!saved.empty()) {
        saved.erase(saved.begin() + below(static_cast<int64_t>(saved.size())));
      }
      const bool bytes = below(3) == 0;
      for (Sequence& each : sequences) check(each, bytes);
      counts.checks += 2;
    }
    // Snapshots must still be whole, whatever became of the sequences.
    for (const Saved& from : saved) {
      sequences[0].cache.restore(from.snapshot);
      sequences[0].accepted = from.accepted;
      sequences[0].gone = from.gone;
      check(sequences[0], true);
      ++counts.checks;
    }
  }
  require(pool->pages_in_use() == 0 && pool->bytes_in_use() == 0, "pages leaked");
  ++counts.sequences;
}

std::vector<Config> configs() {
  struct Shape {
    std::string name;
    std::vector<KvLayerSpec> layers;
  };
  const std::vector<Shape> shapes = {
      {"full", {{2, 32, 0}, {1, 64, 0}}},
      {"sliding", {{1, 32, 70}, {2, 32, 1}, {1, 32, 64}}},
      {"mixed", {{1, 64, 100}, {2, 32, 0}, {1, 32, 5}}},
  };
  const std::vector<std::pair<KvType, KvType>> types = {
      {KvType::f32, KvType::f32},  {KvType::f16, KvType::f16},   {KvType::q8_0, KvType::q8_0},
      {KvType::f16, KvType::q8_0}, {KvType::q4_0, KvType::q4_0}, {KvType::q4_0, KvType::f16}};
  std::vector<Config> result;
  for (const Shape& shape : shapes) {
    for (const auto& [k, v] : types) {
      KvSpec spec;
      spec.layers = shape.layers;
      spec.k_type = k;
      spec.v_type = v;
      spec.context = 333;
      result.push_back(
          {shape.name + " K " + kernels::kv_type_name(k) + " V " + kernels::kv_type_name(v), spec});
    }
  }
  return result;
}

TEST(KvProperty, AnyOrderEqualsNeverHavingSpeculated) {
#ifdef LOCKSTEP_EXPECT_CAUGHT
  const int seeds = 20;
#else
  const int seeds = 60;
#endif
  Counts counts;
  std::optional<std::string> found;
  for (const Config& config : configs()) {
    for (int seed = 0; seed < seeds && !found; ++seed) {
      try {
        run_sequence(config, static_cast<uint64_t>(seed), counts);
      } catch (const std::exception& error) {
        found = config.name + ", seed " + std::to_string(seed) + ": " + error.what();
      }
    }
  }
#ifdef LOCKSTEP_EXPECT_CAUGHT
  ASSERT_TRUE(found) << "the fault was not caught";
  std::printf("caught after %lld whole sequences: %s\n", static_cast<long long>(counts.sequences),
              found->c_str());
#else
  EXPECT_FALSE(found) << *found;
  std::printf(
      "%lld sequences, %lld operations: %lld rows appended, %lld rejected, %lld truncates, "
      "%lld snapshots, %lld restores; %lld whole-state comparisons\n",
      static_cast<long long>(counts.sequences), static_cast<long long>(counts.operations),
      static_cast<long long>(counts.rows_appended), static_cast<long long>(counts.rows_rejected),
      static_cast<long long>(counts.truncates), static_cast<long long>(counts.snapshots),
      static_cast<long long>(counts.restores), static_cast<long long>(counts.checks));
#endif
}

}  // namespace
}  // namespace lockstep::state
