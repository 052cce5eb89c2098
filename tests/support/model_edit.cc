#include "model_edit.h"

#include <cstring>
#include <utility>

#include "gguf/writer.h"

namespace lockstep::test {

ModelEdit& ModelEdit::set(const std::string& key, gguf::Value value) {
  keys_[key] = std::move(value);
  return *this;
}

ModelEdit& ModelEdit::drop(const std::string& key) {
  keys_[key] = std::nullopt;
  return *this;
}

ModelEdit& ModelEdit::change(const std::string& tensor, TensorChange change) {
  changes_[tensor] = std::move(change);
  return *this;
}

ModelEdit& ModelEdit::add(const std::string& tensor, gguf::TensorType type,
                          std::vector<int64_t> ne) {
  added_.push_back({tensor, type, std::move(ne)});
  return *this;
}

std::vector<std::byte> ModelEdit::bytes() const {
  gguf::Writer writer;
  for (const auto& [key, value] : file_.metadata()) {
    if (!keys_.contains(key)) writer.add(key, value);
  }
  for (const auto& [key, value] : keys_) {
    if (value) writer.add(key, *value);
  }
  for (const gguf::Tensor& tensor : file_.tensors()) {
    const auto found = changes_.find(tensor.name);
    const TensorChange change = found == changes_.end() ? TensorChange{} : found->second;
    if (change.removed) continue;
    const bool zeroed = change.type || !change.ne.empty();
    const std::vector<int64_t> ne =
        change.ne.empty() ? std::vector<int64_t>(tensor.ne, tensor.ne + tensor.n_dims) : change.ne;
    writer.add_tensor(change.name.empty() ? tensor.name : change.name,
                      change.type.value_or(tensor.type), ne,
                      [zeroed, data = tensor.data, edit = change.edit](std::span<std::byte> out) {
                        if (!zeroed) std::memcpy(out.data(), data.data(), out.size());
                        if (edit) edit(out);
                      });
  }
  for (const auto& [name, type, ne] : added_)
    writer.add_tensor(name, type, ne, [](std::span<std::byte>) {});
  return writer.to_memory();
}

}  // namespace lockstep::test
