#include "model/model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/mapped_hash.h"
#include "model/architecture.h"
#include "model/binder.h"
#include "model/key_reader.h"

namespace lockstep::model {
namespace {

const Architecture& architecture_of(const gguf::File& file) {
  const auto name = file.string("general.architecture");
  if (!name) file.fail("metadata key \"general.architecture\" is missing; this is no model");
  if (const auto kind = file.string("general.type"); kind && *kind != "model") {
    file.fail(fmt::format("metadata key \"general.type\" is \"{}\"; accepted: \"model\"", *kind));
  }
  const Architecture* architecture = find_architecture(*name);
  if (architecture == nullptr) {
    file.fail(fmt::format("architecture \"{}\" is not known to this program; known: {}", *name,
                          fmt::join(architecture_names(), ", ")));
  }
  return *architecture;
}

}  // namespace

struct Model::Contents {
  explicit Contents(gguf::File file) : binder(std::move(file)) {}

  Binder binder;
  Hyperparameters hparams;
  kernels::Graph graph;
  std::vector<std::string> notes;
  std::mutex hashing;
  std::optional<Digest> digest;
};

Model::Model(gguf::File file) : contents_(std::make_unique<Contents>(std::move(file))) {
  Contents& c = *contents_;
  const Architecture& architecture = architecture_of(c.binder.file());
  const KeyReader keys(c.binder.file());
  c.hparams = architecture.read(keys);
  c.notes = read_notes(keys, c.hparams);
  architecture.build(c.hparams, c.binder, c.graph);
  c.binder.refuse_unused();
  c.binder.refuse_non_finite();
}

Model::~Model() = default;

std::shared_ptr<const Model> Model::load(gguf::File file) {
  return std::shared_ptr<const Model>(new Model(std::move(file)));
}

const gguf::File& Model::file() const {
  return contents_->binder.file();
}
const Hyperparameters& Model::hyperparameters() const {
  return contents_->hparams;
}
const kernels::Graph& Model::graph() const {
  return contents_->graph;
}
const std::vector<std::string>& Model::notes() const {
  return contents_->notes;
}
const std::deque<kernels::Weight>& Model::weights() const {
  return contents_->binder.weights();
}

state::KvSpec Model::kv_spec(state::KvType k_type, state::KvType v_type, int64_t context) const {
  if (context < 1 || context > kMaxContext) {
    throw Error(ExitCode::bad_use,
                fmt::format("a context of {} positions; accepted: 1 to {}", context, kMaxContext));
  }
  const Hyperparameters& hp = contents_->hparams;
  state::KvSpec spec;
  spec.k_type = k_type;
  spec.v_type = v_type;
  spec.context = context;
  for (int64_t i = 0; i < hp.n_layer; ++i) {
    spec.layers.push_back({static_cast<int32_t>(hp.n_head_kv), static_cast<int32_t>(hp.head_dim),
                           hp.sliding[static_cast<size_t>(i)] ? hp.window : 0});
  }
  return spec;
}

int64_t Model::weight_bytes_per_pass(int64_t rows) const {
  int64_t bytes = 0;
  for (const kernels::Op& op : contents_->graph.ops) {
    if (const auto* embed = std::get_if<kernels::op::Embed>(&op.args)) {
      bytes += rows * embed->table->row_bytes;
    } else if (const auto* norm = std::get_if<kernels::op::RmsNorm>(&op.args)) {
      bytes += norm->group * 4;
    } else if (const auto* linear = std::get_if<kernels::op::Linear>(&op.args)) {
      for (const kernels::op::LinearOut& out : linear->outs) {
        bytes += out.weight->n_out * (out.weight->row_bytes + (out.bias != nullptr ? 4 : 0));
      }
    }
  }
  return bytes;
}

int64_t Model::kv_bytes_read(const state::KvSpec& spec, int64_t depth) const {
  int64_t bytes = 0;
  for (const state::KvLayerSpec& layer : spec.layers) {
    const int64_t visible = layer.window > 0 ? std::min(layer.window, depth + 1) : depth + 1;
    bytes += visible * layer.n_head_kv *
             (kernels::kv_row_bytes(spec.k_type, layer.head_dim) +
              kernels::kv_row_bytes(spec.v_type, layer.head_dim));
  }
  return bytes;
}

const Digest& Model::file_sha256() const {
  Contents& c = *contents_;
  // Not std::call_once: an exception that leaves it goes through C code of glibc, which ends the
  // program where memory is too short to look for its own way of unwinding.
  const std::lock_guard lock(c.hashing);
  if (!c.digest) {
    Sha256 hash;
    for (const std::span<const std::byte> part : c.binder.file().parts()) {
      if (c.binder.file().mapped()) {
        update_mapped(hash, part);
      } else {
        hash.update(part);
      }
    }
    c.digest = hash.finish();
  }
  return *c.digest;
}

bool Model::synthetic() const {
  return file().boolean("lockstep.synthetic").value_or(false);
}

}  // namespace lockstep::model
