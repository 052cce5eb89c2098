// Beginnings of texts that were computed before, with their KV pages: a tree in which a node is a
// page of 64 positions, found by a hash of its tokens below its parent and compared token by token.
// Sequences that begin alike hold the same pages. What only the tree holds can be dropped at any
// time, least recently used first, so that it needs no memory of its own (PagePool::bytes_idle).
//
// How far a beginning can be taken over is what each layer allows: one with a window needs the
// pages that the window covers there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "state/kv_cache.h"

namespace lockstep::state {

// As the pool: of one thread at a time. All caches that it gives pages to and gets pages from are
// of one model, one KvSpec and its pool.
class PrefixTree final : public Reclaimable {
 public:
  PrefixTree(std::shared_ptr<PagePool> pool, KvSpec spec);
  ~PrefixTree() override;
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  struct Node;
  // Valid until the tree is next changed, or a page is taken from the pool.
  struct Match {
    int64_t positions = 0;  // that can be taken over
    int64_t pinned_bytes =
        0;  // of the pages of layers without a window that sequences hold already
    std::vector<Node*> nodes;  // as many as the positions have pages
  };
  // The longest beginning of these tokens that can be taken over. whole_pages: the positions are a
  // multiple of 64, so that nothing has to be copied.
  Match match(std::span<const int32_t> tokens, bool whole_pages) const;
  // The cache takes over a match of at least one position.
  void give(const Match& match, KvCache& cache);

  // Keeps the cache's pages, whose tokens these are (as many as its size): whole pages, and with
  // `tail` the last one, too. Where the tree has a whole page already the cache refers to that one
  // from then on.
  void keep(std::span<const int32_t> tokens, KvCache& cache, bool tail);

  int64_t nodes() const { return nodes_; }

  std::optional<uint64_t> oldest() override;
  void drop_oldest() override;

 private:
  Node* find_whole(const Node& parent, std::span<const int32_t> tokens) const;
  Node& add(Node& parent, std::span<const int32_t> tokens);
  void fill(Node& node, const PageColumn& column);
  void empty(PageRef& page);
  void remove(Node& node);
  void use(std::span<Node* const> path);
  void drop_begun_alike(Node& parent, const Node& than);
  Node* oldest_node() const;
  int64_t droppable(const Node& node) const;

  std::shared_ptr<PagePool> pool_;  // declared before the nodes: it must outlive their pages
  KvSpec spec_;
  std::unique_ptr<Node> root_;
  // By last use, the latest first. A node is used whenever one below it is, after it.
  Node* first_ = nullptr;
  Node* last_ = nullptr;
  int64_t nodes_ = 0;
};

}  // namespace lockstep::state
