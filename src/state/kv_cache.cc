#include "state/kv_cache.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/error.h"

namespace lockstep::state {
namespace {

using kernels::kPagePositions;
using kernels::kv_row_bytes;
using kernels::kv_type_name;

int64_t pages_for(int64_t positions) {
  return (positions + kPagePositions - 1) / kPagePositions;
}

void check_spec(const KvSpec& spec) {
  if (spec.context <= 0) throw std::logic_error("KvSpec: context must be positive");
  for (const KvLayerSpec& layer : spec.layers) {
    if (layer.n_head_kv <= 0 || layer.head_dim <= 0 || layer.window < 0) {
      throw std::logic_error("KvSpec: a layer without heads");
    }
    for (const KvType type : {spec.k_type, spec.v_type}) {
      const int64_t block = kernels::kv_block_elements(type);
      if (layer.head_dim % block != 0) {
        throw Error(ExitCode::bad_use, std::string("KV type ") + kv_type_name(type) +
                                           " needs a head size that is a multiple of " +
                                           std::to_string(block) + ", this model's is " +
                                           std::to_string(layer.head_dim) + "; use f16 or f32");
      }
    }
  }
}

bool same_spec(const KvSpec& a, const KvSpec& b) {
  const auto same_layer = [](const KvLayerSpec& x, const KvLayerSpec& y) {
    return x.n_head_kv == y.n_head_kv && x.head_dim == y.head_dim && x.window == y.window;
  };
  return a.k_type == b.k_type && a.v_type == b.v_type &&
         std::equal(a.layers.begin(), a.layers.end(), b.layers.begin(), b.layers.end(), same_layer);
}

// The K or the V pages of one layer, by absolute page number; null where nothing is remembered.
using PageList = std::vector<PageRef>;

// Pages for the CPU to read, wherever they lie; the last one stays at hand.
class PageReader {
 public:
  const std::byte* operator()(const PageRef& page) {
    if (page.operator->() == last_) return bytes_;
    last_ = page.operator->();
    buffer_.resize(static_cast<size_t>(last_->bytes));
    bytes_ = last_->pool->memory().view(last_->data, last_->bytes, buffer_.data());
    return bytes_;
  }

 private:
  const Page* last_ = nullptr;
  const std::byte* bytes_ = nullptr;
  std::vector<std::byte> buffer_;
};

struct Half {
  int64_t n_head = 0;
  int64_t row_bytes = 0;
  PageUse use = PageUse::whole;
  PageList pages;
  std::vector<std::byte*> addresses;  // of `pages`, for views

  int64_t page_bytes() const { return n_head * kPagePositions * row_bytes; }

  void resize(int64_t n_pages) {
    pages.resize(static_cast<size_t>(n_pages));
    addresses.resize(static_cast<size_t>(n_pages), nullptr);
  }
  void set(int64_t index, PageRef page) {
    const auto i = static_cast<size_t>(index);
    addresses[i] = page ? page->data : nullptr;
    pages[i] = std::move(page);
  }
  void adopt(const PageList& list) {
    pages = list;
    addresses.clear();
    for (const PageRef& page : pages) addresses.push_back(page ? page->data : nullptr);
  }

  std::byte* row(const Page& page, int64_t head, int64_t row_in_page) const {
    return page.data + (head * kPagePositions + row_in_page) * row_bytes;
  }

  // Rows [from, rows_written) of a page that this cache alone holds become poison again, so that a
  // page never depends on what was speculated in it.
  void wipe(Page& page, int64_t from) const {
    if (page.rows_written <= from) return;
    page.pool->memory().fill(row(page, 0, from), kPoison, (page.rows_written - from) * row_bytes,
                             kPagePositions * row_bytes, n_head);
    page.rows_written = from;
  }

  // Rows [0, rows) of `from` into `to`, which holds poison.
  void copy_rows(const Page& from, Page& to, int64_t rows) const {
    if (rows > 0) {
      to.pool->memory().copy(to.data, from.data, rows * row_bytes, kPagePositions * row_bytes,
                             n_head);
    }
    to.rows_written = rows;
  }

  void hash_row(Sha256& hash, int64_t position, PageReader& reader) const {
    const PageRef& page = pages[static_cast<size_t>(position / kPagePositions)];
    if (!page) throw std::logic_error("KvCache: a visible page is missing");
    const std::byte* bytes = reader(page);
    for (int64_t head = 0; head < n_head; ++head) {
      hash.update({bytes + (head * kPagePositions + position % kPagePositions) * row_bytes,
                   static_cast<size_t>(row_bytes)});
    }
  }
};

struct Layer {
  int64_t window = 0;
  int64_t first_page = 0;  // pages below were given back
  Half k, v;

  // The first position that a row at `position` sees.
  int64_t first_visible(int64_t position) const {
    return window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
  }
  bool remembers(int64_t position) const {
    return position == 0 || first_visible(position) >= first_page * kPagePositions;
  }
};

}  // namespace

struct KvCache::Snapshot {
  struct LayerPages {
    PageList k, v;
    int64_t first_page = 0;
  };
  std::shared_ptr<PagePool> pool;  // declared before the pages: it must outlive them
  KvSpec spec;
  int64_t size = 0;
  std::vector<LayerPages> layers;
};

struct KvCache::Impl {
  KvSpec spec;
  std::shared_ptr<PagePool> pool;  // declared before the layers: it must outlive their pages
  std::vector<Layer> layers;
  std::vector<KvLayerView> views;
  int64_t size = 0;
  int64_t pending = 0;
  int64_t pages_reused = 0;

  template <typename Function>
  void for_each_half(Function function) {
    for (Layer& layer : layers) {
      function(layer.k);
      function(layer.v);
    }
  }

  // Forgets every row at or past `position`: whole pages are released, the rows of the page that
  // `position` cuts are wiped. A page shared with a snapshot keeps its bytes; append copies it.
  void forget_from(int64_t position) {
    const int64_t kept_pages = pages_for(position);
    for_each_half([&](Half& half) {
      if (static_cast<int64_t>(half.pages.size()) > kept_pages) half.resize(kept_pages);
      if (position % kPagePositions == 0 || half.pages.empty()) return;
      PageRef& last = half.pages.back();
      if (last && !last.shared()) half.wipe(*last.operator->(), position % kPagePositions);
    });
  }

  // Releases what no row at or past `size` can see. Only here, after acceptance is known: the rows
  // that a rejected row pushed out of the window would otherwise be missed.
  void release_invisible() {
    for (Layer& layer : layers) {
      const int64_t first = layer.first_visible(size) / kPagePositions;
      for (; layer.first_page < first; ++layer.first_page) {
        layer.k.set(layer.first_page, {});
        layer.v.set(layer.first_page, {});
      }
    }
  }

  int64_t count_pages(int64_t* bytes) const {
    int64_t pages = 0;
    for (const Layer& layer : layers) {
      for (const Half* half : {&layer.k, &layer.v}) {
        for (const PageRef& page : half->pages) {
          if (!page) continue;
          ++pages;
          if (bytes != nullptr) *bytes += page->bytes;
        }
      }
    }
    return pages;
  }
};

int64_t bytes_per_position(const KvSpec& spec) {
  int64_t bytes = 0;
  for (const KvLayerSpec& layer : spec.layers) {
    bytes += layer.n_head_kv * (kv_row_bytes(spec.k_type, layer.head_dim) +
                                kv_row_bytes(spec.v_type, layer.head_dim));
  }
  return bytes;
}

KvCache::KvCache(KvSpec spec, std::shared_ptr<PagePool> pool) : impl_(std::make_unique<Impl>()) {
  check_spec(spec);
  impl_->pool = pool ? std::move(pool) : make_page_pool(0);
  for (const KvLayerSpec& layer_spec : spec.layers) {
    Layer layer;
    layer.window = layer_spec.window;
    layer.k.n_head = layer.v.n_head = layer_spec.n_head_kv;
    layer.k.row_bytes = kv_row_bytes(spec.k_type, layer_spec.head_dim);
    layer.v.row_bytes = kv_row_bytes(spec.v_type, layer_spec.head_dim);
    if (layer.window > 0) layer.k.use = layer.v.use = PageUse::window;
    impl_->layers.push_back(std::move(layer));
    KvLayerView view;
    view.k_type = spec.k_type;
    view.v_type = spec.v_type;
    view.n_head_kv = layer_spec.n_head_kv;
    view.head_dim = layer_spec.head_dim;
    impl_->views.push_back(view);
  }
  impl_->spec = std::move(spec);
}

KvCache::~KvCache() = default;
KvCache::KvCache(KvCache&&) noexcept = default;
KvCache& KvCache::operator=(KvCache&&) noexcept = default;

int64_t KvCache::size() const {
  return impl_->size;
}
const KvSpec& KvCache::spec() const {
  return impl_->spec;
}
int64_t KvCache::pending() const {
  return impl_->pending;
}

std::span<const KvLayerView> KvCache::append(int64_t rows) {
  Impl& state = *impl_;
  if (state.pending != 0) throw std::logic_error("KvCache::append: rows are pending");
  if (rows <= 0) throw std::logic_error("KvCache::append: no rows");
  if (rows > state.spec.context - state.size) {
    throw Error(ExitCode::bad_use, "position " + std::to_string(state.size + rows - 1) +
                                       " is past the context of " +
                                       std::to_string(state.spec.context) + "; raise it with -c");
  }
  const int64_t first = state.size / kPagePositions;
  const int64_t n_pages = pages_for(state.size + rows);
  const int64_t rows_kept = state.size % kPagePositions;  // of page `first`

  // Everything that can fail comes first.
  std::vector<PageRef> fresh;
  state.for_each_half([&](Half& half) {
    for (int64_t index = first; index < n_pages; ++index) {
      const bool have = index < static_cast<int64_t>(half.pages.size());
      const bool usable = have && half.pages[static_cast<size_t>(index)] &&
                          !half.pages[static_cast<size_t>(index)].shared();
      if (!usable) fresh.push_back(state.pool->take(half.page_bytes(), half.use));
    }
  });
  state.for_each_half([&](Half& half) { half.resize(n_pages); });

  auto next = fresh.begin();
  state.for_each_half([&](Half& half) {
    for (int64_t index = first; index < n_pages; ++index) {
      const PageRef& old = half.pages[static_cast<size_t>(index)];
      if (!old) {
        half.set(index, std::move(*next++));
      } else if (old.shared()) {
        PageRef copy = std::move(*next++);
        half.copy_rows(*old.operator->(), *copy.operator->(), rows_kept);
        half.set(index, std::move(copy));
      } else if (index == first) {
        // A snapshot that shared this page may have died after a truncate left its rows in place.
        half.wipe(*old.operator->(), rows_kept);
      }
      Page& page = *half.pages[static_cast<size_t>(index)].operator->();
      page.rows_written = std::min(kPagePositions, state.size + rows - index * kPagePositions);
    }
  });
  for (size_t i = 0; i < state.layers.size(); ++i) {
    KvLayerView& view = state.views[i];
    view.k_pages = state.layers[i].k.addresses.data();
    view.v_pages = state.layers[i].v.addresses.data();
    view.n_pages = n_pages;
  }
  state.pending = rows;
  return state.views;
}

void KvCache::commit(int64_t rows) {
  Impl& state = *impl_;
  if (rows < 0 || rows > state.pending) {
    throw std::logic_error("KvCache::commit: more rows than were appended");
  }
  state.pending = 0;
  state.size += rows;
  state.forget_from(state.size);
  state.release_invisible();
}

int64_t KvCache::reusable(int64_t wanted) const {
  const int64_t position = std::clamp<int64_t>(wanted, 0, impl_->size);
  for (const Layer& layer : impl_->layers) {
    if (!layer.remembers(position)) return 0;
  }
  return position;
}

void KvCache::truncate(int64_t position) {
  if (position < 0 || reusable(position) != position) {
    throw std::logic_error("KvCache::truncate: position " + std::to_string(position) +
                           " is not reusable");
  }
  Impl& state = *impl_;
  state.pending = 0;
  state.size = position;
  state.forget_from(position);
  if (position == 0) {
    for (Layer& layer : state.layers) layer.first_page = 0;
  }
  state.pages_reused += state.count_pages(nullptr);
}

std::shared_ptr<const KvCache::Snapshot> KvCache::snapshot() const {
  if (impl_->pending != 0) throw std::logic_error("KvCache::snapshot: rows are pending");
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->pool = impl_->pool;
  snapshot->spec = impl_->spec;
  snapshot->size = impl_->size;
  for (const Layer& layer : impl_->layers) {
    snapshot->layers.push_back({layer.k.pages, layer.v.pages, layer.first_page});
  }
  return snapshot;
}

void KvCache::restore(const std::shared_ptr<const Snapshot>& snapshot) {
  Impl& state = *impl_;
  if (!snapshot || snapshot->pool != state.pool || !same_spec(snapshot->spec, state.spec) ||
      snapshot->size > state.spec.context) {
    throw std::logic_error("KvCache::restore: the snapshot is of another kind of cache");
  }
  for (size_t i = 0; i < state.layers.size(); ++i) {
    const Snapshot::LayerPages& saved = snapshot->layers[i];
    state.layers[i].k.adopt(saved.k);
    state.layers[i].v.adopt(saved.v);
    state.layers[i].first_page = saved.first_page;
  }
  state.pending = 0;
  state.size = snapshot->size;
  state.pages_reused += state.count_pages(nullptr);
}

PageColumn KvCache::column(int64_t index) const {
  PageColumn column;
  for (const Layer& layer : impl_->layers) {
    column.push_back(layer.k.pages.at(static_cast<size_t>(index)));
    column.push_back(layer.v.pages.at(static_cast<size_t>(index)));
  }
  return column;
}

void KvCache::adopt(std::span<const PageColumn* const> columns, int64_t size) {
  Impl& state = *impl_;
  if (size < 1 || size > state.spec.context || std::ssize(columns) != pages_for(size)) {
    throw std::logic_error("KvCache::adopt: not the columns of so many positions");
  }
  for (size_t l = 0; l < state.layers.size(); ++l) {
    Layer& layer = state.layers[l];
    const auto there = [&](int64_t index) {
      const PageColumn& column = *columns[static_cast<size_t>(index)];
      return column[2 * l] && column[2 * l + 1];
    };
    int64_t first = std::ssize(columns);
    while (first > 0 && there(first - 1)) --first;
    if (layer.first_visible(size) < first * kPagePositions) {
      throw std::logic_error("KvCache::adopt: a visible page is missing");
    }
    // What no later row can see is left to whoever has it.
    if (layer.window > 0) first = layer.first_visible(size) / kPagePositions;
    for (Half* half : {&layer.k, &layer.v}) {
      const size_t side = half == &layer.k ? 2 * l : 2 * l + 1;
      half->adopt({});
      half->resize(std::ssize(columns));
      for (int64_t i = first; i < std::ssize(columns); ++i) {
        half->set(i, (*columns[static_cast<size_t>(i)])[side]);
      }
    }
    layer.first_page = first;
  }
  state.pending = 0;
  state.size = size;
  state.pages_reused += state.count_pages(nullptr);
}

void KvCache::share(int64_t index, const PageColumn& column) {
  if ((index + 1) * kPagePositions > impl_->size) {
    throw std::logic_error("KvCache::share: not a whole page");
  }
  size_t side = 0;
  impl_->for_each_half([&](Half& half) {
    const PageRef& page = column[side++];
    if (page && half.pages[static_cast<size_t>(index)]) half.set(index, page);
  });
}

namespace {

// Pages that a layer with a window holds at most: those that the first row of a pass sees, to those
// of the last.
int64_t most_pages(int64_t window, int64_t positions, int64_t rows) {
  const int64_t all = pages_for(positions);
  return window > 0 ? std::min(all, pages_for(window + rows) + 1) : all;
}

}  // namespace

Claim whole_claim(const KvSpec& spec, int64_t positions, int64_t rows) {
  Claim claim;
  for (const KvLayerSpec& layer : spec.layers) {
    const int64_t bytes =
        most_pages(layer.window, positions, rows) * kPagePositions * layer.n_head_kv *
        (kv_row_bytes(spec.k_type, layer.head_dim) + kv_row_bytes(spec.v_type, layer.head_dim));
    (layer.window > 0 ? claim.windows : claim.to_come) += bytes;
  }
  return claim;
}

Claim KvCache::claim(int64_t positions, int64_t rows) const {
  Claim claim;
  for (const Layer& layer : impl_->layers) {
    for (const Half* half : {&layer.k, &layer.v}) {
      int64_t pages = most_pages(layer.window, positions, rows);
      // A page that is shared and not full is copied before rows are added to it.
      if (impl_->size % kPagePositions != 0 && !half->pages.empty() &&
          half->pages.back().shared()) {
        ++pages;
      }
      if (layer.window > 0) {
        claim.windows += pages * half->page_bytes();
      } else {
        claim.to_come += std::max<int64_t>(0, pages - std::ssize(half->pages)) * half->page_bytes();
      }
    }
  }
  return claim;
}

Digest KvCache::hash() const {
  Sha256 hash;
  PageReader reader;
  for (const Layer& layer : impl_->layers) {
    for (const Half* half : {&layer.k, &layer.v}) {
      for (int64_t p = layer.first_visible(impl_->size); p < impl_->size; ++p) {
        half->hash_row(hash, p, reader);
      }
    }
  }
  return hash.finish();
}

Digest KvCache::hash_position(int64_t position) const {
  Sha256 hash;
  PageReader reader;
  for (const Layer& layer : impl_->layers) {
    if (position < layer.first_visible(impl_->size) || position >= impl_->size) continue;
    layer.k.hash_row(hash, position, reader);
    layer.v.hash_row(hash, position, reader);
  }
  return hash.finish();
}

int64_t KvCache::pages_in_use() const {
  return impl_->count_pages(nullptr);
}

int64_t KvCache::bytes_in_use() const {
  int64_t bytes = 0;
  impl_->count_pages(&bytes);
  return bytes;
}

int64_t KvCache::pages_reused() const {
  return impl_->pages_reused;
}

}  // namespace lockstep::state
