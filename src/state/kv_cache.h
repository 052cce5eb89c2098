// What one sequence remembers of its attention layers: keys and values in pages of 64 absolute
// positions. append / truncate / snapshot are exact: truncate-then-continue leaves the bytes that
// never having speculated leaves (contract E1).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/sha256.h"
#include "kernels/types.h"

namespace lockstep::state {

using kernels::KvLayerView;
using kernels::KvType;

struct KvLayerSpec {
  int32_t n_head_kv = 0;
  int32_t head_dim = 0;
  int64_t window = 0;   // visible positions, the query's own included; 0: all
};

struct KvSpec {
  std::vector<KvLayerSpec> layers;
  KvType k_type = KvType::f16;
  KvType v_type = KvType::f16;
  int64_t context = 0;           // positions [0, context) may be used
};

// Bytes of one position over all layers (windows not considered), and of one page.
int64_t bytes_per_position(const KvSpec& spec);

// Hands out pages of equal-size classes and takes them back; counts what is in use. Not thread-safe.
class PagePool;
std::shared_ptr<PagePool> make_page_pool(int64_t max_bytes /* 0: no limit */);

class KvCache {
 public:
  KvCache(KvSpec spec, std::shared_ptr<PagePool> pool);
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  // Positions [0, size) are remembered (sliding layers: those a later row can still see).
  int64_t size() const;
  const KvSpec& spec() const;

  // Pages for rows [size, size+rows), as views for a pass (one per layer), valid until the next call
  // of a non-const member. Pages shared with a snapshot are copied first (copy on write). Sliding
  // layers keep every position >= size - window + 1 - and the rows of this pass - until commit.
  // Throws Error(resource) when the pool's limit would be passed; nothing changes then.
  std::span<const KvLayerView> append(int64_t rows);
  // Keeps the first `rows` of the appended rows (accepted), forgets the rest: size += rows. Pages
  // that no later row can see are given back.
  void commit(int64_t rows);

  // The greatest position <= wanted to which truncate is exact: wanted itself unless a sliding layer
  // no longer has what a row at `wanted` must see; then 0.
  int64_t reusable(int64_t wanted) const;
  // Forgets positions >= position. position must be reusable(position).
  void truncate(int64_t position);

  // A cheap copy that shares pages. Restoring is exact whatever happened since.
  struct Snapshot;
  std::shared_ptr<const Snapshot> snapshot() const;
  void restore(const std::shared_ptr<const Snapshot>& snapshot);

  // SHA-256 over spec-visible content: for each layer, K then V, every head's row of every position
  // that a later row can see ([max(0, size-window+1), size) on sliding layers), in position order.
  Digest hash() const;
  // For comparisons that name a place: SHA-256 of position p's rows in all layers that still see it.
  Digest hash_position(int64_t position) const;

  int64_t pages_in_use() const;
  int64_t bytes_in_use() const;
  // Pages taken over unchanged by restore or truncate since construction (for `prove`'s table).
  int64_t pages_reused() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::state
