#include "state/prefix_tree.h"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace lockstep::state {
namespace {

using kernels::kPagePositions;

// Spreads what is alike; whoever finds something by it compares the tokens.
uint64_t hash_of(std::span<const int32_t> tokens) {
  uint64_t h = 0x9E3779B97F4A7C15u;
  for (const int32_t token : tokens) {
    h = (h ^ static_cast<uint32_t>(token)) * 0xFF51AFD7ED558CCDu;
    h ^= h >> 32;
  }
  return h;
}

int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t n = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first -
         a.begin();
}

}  // namespace

struct PrefixTree::Node {
  std::vector<int32_t> tokens;  // 64; fewer where a text ended: then nothing is below
  PageColumn pages;
  Node* parent = nullptr;
  std::unordered_multimap<uint64_t, std::unique_ptr<Node>> children;  // by hash of all their tokens
  uint64_t used = 0;                                                  // PagePool::tick
  Node* newer = nullptr;
  Node* older = nullptr;

  bool whole() const { return std::ssize(tokens) == kPagePositions; }
};

PrefixTree::PrefixTree(std::shared_ptr<PagePool> pool, KvSpec spec)
    : pool_(std::move(pool)), spec_(std::move(spec)), root_(std::make_unique<Node>()) {
  pool_->add(this);
}

PrefixTree::~PrefixTree() {
  pool_->remove(this);
  for (Node* node = first_; node != nullptr; node = node->older) {
    for (PageRef& page : node->pages) empty(page);
  }
  // From the leaves up: a long text is a deep tree.
  while (last_ != nullptr) remove(*last_);
}

PrefixTree::Node* PrefixTree::find_whole(const Node& parent,
                                         std::span<const int32_t> tokens) const {
  const auto [begin, end] = parent.children.equal_range(hash_of(tokens));
  for (auto at = begin; at != end; ++at) {
    if (std::ranges::equal(at->second->tokens, tokens)) return at->second.get();
  }
  return nullptr;
}

PrefixTree::Match PrefixTree::match(std::span<const int32_t> tokens, bool whole_pages) const {
  Match match;
  const auto n = std::ssize(tokens);
  const int64_t n_halves = 2 * std::ssize(spec_.layers);
  // Of each layer's K and V the last page on the path so far that is not there.
  std::vector<int64_t> missing(static_cast<size_t>(n_halves), -1);
  const auto complete_at = [&](int64_t position) {
    for (int64_t h = 0; h < n_halves; ++h) {
      const int64_t window = spec_.layers[static_cast<size_t>(h / 2)].window;
      const int64_t first = window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
      if (missing[static_cast<size_t>(h)] >= first / kPagePositions) return false;
    }
    return true;
  };
  const auto walk_to = [&](Node* node, int64_t position) {
    match.nodes.push_back(node);
    for (size_t h = 0; h < node->pages.size(); ++h) {
      if (!node->pages[h]) missing[h] = std::ssize(match.nodes) - 1;
    }
    if (complete_at(position)) match.positions = position;
  };

  Node* at = root_.get();
  int64_t common = 0;
  const auto rest = [&] { return tokens.subspan(static_cast<size_t>(common)); };
  while (common + kPagePositions <= n) {
    Node* child = find_whole(*at, rest().first(kPagePositions));
    if (child == nullptr) break;
    at = child;
    common += kPagePositions;
    walk_to(at, common);
  }
  if (!whole_pages) {
    Node* most = nullptr;
    int64_t shared = 0;
    for (const auto& [hash, child] : at->children) {
      const int64_t alike = common_prefix(child->tokens, rest());
      if (alike <= shared) continue;
      most = child.get();
      shared = alike;
    }
    if (most != nullptr) walk_to(most, common + shared);
  }

  match.nodes.resize(static_cast<size_t>((match.positions + kPagePositions - 1) / kPagePositions));
  for (const Node* node : match.nodes) {
    for (const PageRef& page : node->pages) {
      if (page && page->use == PageUse::whole && page.shared()) match.pinned_bytes += page->bytes;
    }
  }
  return match;
}

void PrefixTree::give(const Match& match, KvCache& cache) {
  if (match.positions < 1) throw std::logic_error("PrefixTree::give: nothing matched");
  std::vector<const PageColumn*> columns;
  for (const Node* node : match.nodes) columns.push_back(&node->pages);
  cache.adopt(columns, match.positions);
  use(match.nodes);
}

void PrefixTree::keep(std::span<const int32_t> tokens, KvCache& cache, bool tail) {
  if (std::ssize(tokens) != cache.size() || cache.pending() != 0) {
    throw std::logic_error("PrefixTree::keep: other tokens than the cache has rows");
  }
  std::vector<Node*> path;
  Node* at = root_.get();
  for (int64_t page = 0; page * kPagePositions < std::ssize(tokens); ++page) {
    const auto rest = tokens.subspan(static_cast<size_t>(page * kPagePositions));
    if (std::ssize(rest) < kPagePositions && !tail) break;
    const auto own = rest.first(std::min<size_t>(rest.size(), kPagePositions));
    Node* node = find_whole(*at, own);
    if (node == nullptr) {
      if (own.size() < kPagePositions && std::ranges::any_of(at->children, [&](const auto& entry) {
            return common_prefix(entry.second->tokens, own) == std::ssize(own);
          })) {
        break;  // a page that goes on from here holds these rows as well
      }
      node = &add(*at, own);
    }
    fill(*node, cache.column(page));
    if (node->whole()) cache.share(page, node->pages);
    path.push_back(node);
    at = node;
  }
  use(path);
}

PrefixTree::Node& PrefixTree::add(Node& parent, std::span<const int32_t> tokens) {
  auto made = std::make_unique<Node>();
  Node& node = *made;
  node.tokens.assign(tokens.begin(), tokens.end());
  node.pages.resize(2 * spec_.layers.size());
  node.parent = &parent;
  parent.children.emplace(hash_of(tokens), std::move(made));
  node.older = std::exchange(first_, &node);
  (node.older != nullptr ? node.older->newer : last_) = &node;
  ++nodes_;
  drop_begun_alike(parent, node);
  return node;
}

// Pages where a text ended that a longer one, `than`, has gone on from.
void PrefixTree::drop_begun_alike(Node& parent, const Node& than) {
  std::vector<Node*> dropped;
  for (const auto& [hash, child] : parent.children) {
    if (child.get() == &than || child->whole()) continue;
    if (common_prefix(child->tokens, than.tokens) == std::ssize(child->tokens)) {
      dropped.push_back(child.get());
    }
  }
  for (Node* node : dropped) {
    for (PageRef& page : node->pages) empty(page);
    remove(*node);
  }
}

// Takes what the node does not have yet.
void PrefixTree::fill(Node& node, const PageColumn& column) {
  for (size_t h = 0; h < column.size(); ++h) {
    if (node.pages[h] || !column[h]) continue;
    node.pages[h] = column[h];
    pool_->set_cached(*node.pages[h].operator->(), true);
  }
}

void PrefixTree::empty(PageRef& page) {
  if (!page) return;
  pool_->set_cached(*page.operator->(), false);
  page = {};
}

void PrefixTree::remove(Node& node) {
  (node.newer != nullptr ? node.newer->older : first_) = node.older;
  (node.older != nullptr ? node.older->newer : last_) = node.newer;
  --nodes_;
  auto& siblings = node.parent->children;
  const auto [begin, end] = siblings.equal_range(hash_of(node.tokens));
  siblings.erase(std::find_if(begin, end, [&](const auto& e) { return e.second.get() == &node; }));
}

// The deepest first, so that each stays newer than all below it.
void PrefixTree::use(std::span<Node* const> path) {
  const uint64_t now = pool_->tick();
  for (size_t i = path.size(); i-- > 0;) {
    Node& node = *path[i];
    node.used = now;
    if (first_ == &node) continue;
    node.newer->older = node.older;
    (node.older != nullptr ? node.older->newer : last_) = node.newer;
    node.newer = nullptr;
    node.older = std::exchange(first_, &node);
    node.older->newer = &node;
  }
}

// Bytes that dropping would give back: of a leaf all that no sequence holds. Of another node what
// layers with a window have, since what is below needs the rest; those below are dropped first.
int64_t PrefixTree::droppable(const Node& node) const {
  int64_t bytes = 0;
  for (const PageRef& page : node.pages) {
    if (!page || page.shared()) continue;
    if (node.children.empty() || page->use == PageUse::window) bytes += page->bytes;
  }
  return bytes;
}

PrefixTree::Node* PrefixTree::oldest_node() const {
  for (Node* node = last_; node != nullptr; node = node->newer) {
    if (droppable(*node) > 0) return node;
  }
  return nullptr;
}

std::optional<uint64_t> PrefixTree::oldest() {
  const Node* node = oldest_node();
  return node != nullptr ? std::optional(node->used) : std::nullopt;
}

void PrefixTree::drop_oldest() {
  Node* node = oldest_node();
  if (node == nullptr) return;
  const bool leaf = node->children.empty();
  for (PageRef& page : node->pages) {
    if (page && !page.shared() && (leaf || page->use == PageUse::window)) empty(page);
  }
  // Of a page that a sequence still holds the rest stays.
  const auto bare = [](const Node& of) {
    return of.children.empty() &&
           std::ranges::none_of(of.pages, [](const PageRef& page) { return bool(page); });
  };
  while (node != root_.get() && bare(*node)) {
    Node* parent = node->parent;
    remove(*node);
    node = parent;
  }
}

}  // namespace lockstep::state
