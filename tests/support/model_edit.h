// A copy of a model file with keys and tensors changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gguf/file.h"
#include "gguf/types.h"

namespace lockstep::test {

// What becomes of one tensor. A new type or shape comes with data of zeros.
struct TensorChange {
  bool removed = false;
  std::string name;  // empty: stays
  std::optional<gguf::TensorType> type;
  std::vector<int64_t> ne;                         // empty: stays
  std::function<void(std::span<std::byte>)> edit;  // last, on the data
};

class ModelEdit {
 public:
  explicit ModelEdit(gguf::File file) : file_(std::move(file)) {}

  ModelEdit& set(const std::string& key, gguf::Value value);
  ModelEdit& drop(const std::string& key);
  ModelEdit& change(const std::string& tensor, TensorChange change);
  ModelEdit& add(const std::string& tensor, gguf::TensorType type, std::vector<int64_t> ne);

  // std::invalid_argument where the writer cannot write such a tensor.
  std::vector<std::byte> bytes() const;

 private:
  struct Added {
    std::string name;
    gguf::TensorType type;
    std::vector<int64_t> ne;
  };
  gguf::File file_;
  std::map<std::string, std::optional<gguf::Value>> keys_;
  std::map<std::string, TensorChange> changes_;
  std::vector<Added> added_;
};

}  // namespace lockstep::test
