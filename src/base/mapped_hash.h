// SHA-256 of a mapped file that needn't stay in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/mapped_file.h"
#include "base/sha256.h"

namespace lockstep {

// Adds bytes, which lie in a MappedFile, to hash, and gives their pages back on the way.
inline void update_mapped(Sha256& hash, std::span<const std::byte> bytes) {
  constexpr size_t kPiece = size_t{1} << 20;  // held at once
  while (!bytes.empty()) {
    const auto piece = bytes.first(std::min(kPiece, bytes.size()));
    hash.update(piece);
    release_mapped(piece);
    bytes = bytes.subspan(piece.size());
  }
}

}  // namespace lockstep
