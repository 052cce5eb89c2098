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
#include "state/page_pool.h"

namespace lockstep::state {

using kernels::KvLayerView;
using kernels::KvType;

struct KvLayerSpec {
  int32_t n_head_kv = 0;
  int32_t head_dim = 0;
  int64_t window = 0;  // visible positions, the query's own included; 0: all
};

struct KvSpec {
  std::vector<KvLayerSpec> layers;
  KvType k_type = KvType::f16;
  KvType v_type = KvType::f16;
  int64_t context = 0;  // positions [0, context) may be used
};

// Bytes of one position over all layers (windows not considered).
int64_t bytes_per_position(const KvSpec& spec);

// The pages that hold the same 64 positions: of each layer K, then V; none where a layer with a
// window has given its page back.
using PageColumn = std::vector<PageRef>;

// Bytes of pages that a sequence may yet need. Of layers that see everything: still to be taken. Of
// layers with a window: in all, what it holds already included, since a page that it gives back may
// stay with another sequence.
struct Claim {
  int64_t to_come = 0;
  int64_t windows = 0;

  Claim& operator+=(const Claim& other) {
    to_come += other.to_come;
    windows += other.windows;
    return *this;
  }
};
// Of a sequence that has no pages yet, until it has so many positions, in passes of so many rows at
// most.
Claim whole_claim(const KvSpec& spec, int64_t positions, int64_t rows);

// Misuse by the caller (an append before the commit of the last one, a truncate to a position that
// is not reusable, a snapshot of another kind of cache) is std::logic_error.
class KvCache {
 public:
  // pool null: one of its own, without a limit. Throws Error(bad_use) when a KV type does not fit a
  // head size (q8_0 and q4_0 need a multiple of 32).
  KvCache(KvSpec spec, std::shared_ptr<PagePool> pool);
  ~KvCache();
  KvCache(KvCache&&) noexcept;
  KvCache& operator=(KvCache&&) noexcept;

  // Positions [0, size) are remembered (sliding layers: those a later row can still see).
  int64_t size() const;
  const KvSpec& spec() const;

  // Pages for rows [size, size+rows), rows >= 1, as views for a pass (one per layer), valid until
  // the next call of a non-const member. Pages shared with a snapshot are copied first (copy on
  // write). Rows not yet written hold kPoison. Sliding layers give nothing back before commit:
  // however few of the rows are kept, what the row after them sees is still there. Throws
  // Error(bad_use) past the context and Error(resource) when the pool's limit would be passed;
  // nothing changes then.
  std::span<const KvLayerView> append(int64_t rows);
  // Keeps the first `rows` of the appended rows (accepted), forgets the rest: size += rows. Pages
  // that no later row can see are given back. commit(0) undoes the append.
  void commit(int64_t rows);
  // Rows appended and not yet committed.
  int64_t pending() const;

  // The greatest position <= min(wanted, size) to which truncate is exact: that position itself
  // unless a sliding layer no longer has what a row there must see; then 0 (every position between
  // needs the lost rows too).
  int64_t reusable(int64_t wanted) const;
  // Forgets positions >= position, and pending rows. position must be reusable(position).
  void truncate(int64_t position);

  // A cheap copy that shares pages; no rows may be pending. Restoring is exact whatever happened
  // since, into this cache or another of the same spec and pool; pending rows are forgotten.
  struct Snapshot;
  std::shared_ptr<const Snapshot> snapshot() const;
  void restore(const std::shared_ptr<const Snapshot>& snapshot);

  // The pages of positions [64 * index, 64 * (index + 1)), of which size() must have reached the
  // first.
  PageColumn column(int64_t index) const;
  // Takes over `size` positions, 0 < size <= 64 * columns: rows that had the same tokens before
  // them. Of each layer every page that a row at `size` can see must be there. What was remembered
  // and pending before is forgotten.
  void adopt(std::span<const PageColumn* const> columns, int64_t size);
  // Refers to these pages, which hold the same bytes, in place of its own; whole pages below
  // size().
  void share(int64_t index, const PageColumn& column);

  // What it may yet need until it has so many positions, in passes of so many rows at most.
  Claim claim(int64_t positions, int64_t rows) const;

  // SHA-256 over the content that a later row can see: for each layer, K then V, positions
  // [max(0, size-window+1), size) on sliding layers, [0, size) on others, ascending; of each
  // position the rows of all heads, ascending. Pending rows are not in it.
  Digest hash() const;
  // For comparisons that name a place: SHA-256 of position p's rows, for each layer that still sees
  // it, K then V.
  Digest hash_position(int64_t position) const;

  // Pages this cache refers to, shared or not.
  int64_t pages_in_use() const;
  int64_t bytes_in_use() const;
  // Pages taken over unchanged by restore or truncate since construction (for `prove`'s table).
  int64_t pages_reused() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::state
