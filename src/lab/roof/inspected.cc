#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "lab/roof/roof.h"

extern char** environ;

namespace lockstep::lab::roof {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxOutput = 256 << 20;  // a model of 100,000 tensors prints about 20 MB

const Json* find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

// A whole number of metadata, or of each layer where it is an array.
std::vector<int64_t> metadata_numbers(const Json& inspected, std::string_view key, size_t layers) {
  const Json* list = find(inspected, "metadata");
  if (!list || !list->is_array()) return {};
  for (const Json& entry : *list) {
    const Json* name = find(entry, "key");
    if (!name || *name != key) continue;
    const Json* value = find(entry, "value");
    if (!value) return {};
    if (value->is_number_integer()) return std::vector<int64_t>(layers, value->get<int64_t>());
    const Json* elements = find(*value, "elements");
    if (!elements || !elements->is_array() || elements->size() != layers) return {};
    std::vector<int64_t> out;
    for (const Json& element : *elements) {
      if (element.is_boolean()) {
        out.push_back(element.get<bool>());
      } else if (element.is_number_integer()) {
        out.push_back(element.get<int64_t>());
      } else {
        return {};
      }
    }
    return out;
  }
  return {};
}

int64_t metadata_number(const Json& inspected, const std::string& key) {
  const std::vector<int64_t> one = metadata_numbers(inspected, key, 1);
  return one.size() == 1 ? one[0] : 0;
}

// Keys and values by the metadata every GGUF of a transformer has.
std::vector<KvGroup> kv_of(const Json& inspected, const std::string& arch) {
  const int64_t layers = metadata_number(inspected, arch + ".block_count");
  if (layers < 1 || layers > 10'000) return {};
  const auto n = static_cast<size_t>(layers);
  const auto of = [&](const char* key) { return metadata_numbers(inspected, arch + "." + key, n); };
  std::vector<int64_t> heads = of("attention.head_count"), kv = of("attention.head_count_kv");
  if (kv.empty()) kv = heads;
  std::vector<int64_t> key = of("attention.key_length"), value = of("attention.value_length");
  const int64_t embd = metadata_number(inspected, arch + ".embedding_length");
  if (key.empty() && !heads.empty() && heads[0] > 0) key.assign(n, embd / heads[0]);
  if (value.empty()) value = key;
  if (kv.size() != n || key.size() != n || value.size() != n) return {};
  const int64_t window = metadata_number(inspected, arch + ".attention.sliding_window");
  std::vector<int64_t> local = of("attention.sliding_window_pattern");
  // A number instead of an array is a period: the last layer of each attends to everything.
  const bool period = window > 0 && !local.empty() && local[0] > 1;
  const std::vector<int64_t> key_local = of("attention.key_length_swa"),
                             value_local = of("attention.value_length_swa");
  std::vector<KvGroup> groups;
  for (size_t i = 0; i < n; ++i) {
    bool is_local = false;
    if (window > 0 && period) is_local = static_cast<int64_t>(i + 1) % local[0] != 0;
    if (window > 0 && !period && local.size() == n) is_local = local[i] != 0;
    // gemma3 files may say nothing of the pattern: its period is 6.
    if (window > 0 && local.empty() && arch == "gemma3") is_local = (i + 1) % 6 != 0;
    KvGroup group{1, kv[i], key[i], value[i], is_local ? window : 0};
    if (is_local && key_local.size() == n) group.key_dim = key_local[i];
    if (is_local && value_local.size() == n) group.value_dim = value_local[i];
    if (group.heads < 1 || group.heads > 1 << 20 || group.key_dim < 1 || group.key_dim > 1 << 20 ||
        group.value_dim < 1 || group.value_dim > 1 << 20) {
      return {};
    }
    const auto same = std::find_if(groups.begin(), groups.end(), [&group](const KvGroup& g) {
      return g.heads == group.heads && g.key_dim == group.key_dim &&
             g.value_dim == group.value_dim && g.window == group.window;
    });
    if (same != groups.end()) {
      ++same->layers;
    } else {
      groups.push_back(group);
    }
  }
  return groups;
}

}  // namespace

Shape shape_of_inspected(const std::string& text, const std::string& source) {
  const auto refuse = [&source](std::string_view why) {
    throw Error(ExitCode::bad_file, fmt::format("{}: {}; give a shape instead (bytes=...,kv=LxHxD)",
                                                shorten(source), why));
  };
  const Json inspected = Json::parse(text, nullptr, false);
  const Json* schema = inspected.is_discarded() ? nullptr : find(inspected, "schema");
  if (!schema || *schema != "lockstep.inspect/1")
    refuse("inspect did not print lockstep.inspect/1");
  const Json* tensors = find(inspected, "tensors");
  if (!tensors || !tensors->is_array() || tensors->empty()) refuse("no tensors");
  const std::string arch = find(inspected, "architecture") && inspected["architecture"].is_string()
                               ? inspected["architecture"].get<std::string>()
                               : "";
  // Weights once, routed experts by expert, and of an embedding table that is no output matrix a
  // row.
  Shape shape;
  bool has_output = false;
  double embedding = 0, embedding_row = 0, expert_tensors = 0;
  for (const Json& tensor : *tensors) {
    const Json *name = find(tensor, "name"), *bytes = find(tensor, "bytes"),
               *ne = find(tensor, "ne");
    if (!name || !name->is_string() || !bytes || !bytes->is_number() || !ne || !ne->is_array())
      refuse("a tensor without name, bytes and shape");
    const auto id = name->get<std::string>();
    const auto size = bytes->get<double>();
    if (id == "output.weight") has_output = true;
    if (id == "token_embd.weight") {
      embedding = size;
      if (ne->size() == 2 && (*ne)[1].is_number() && (*ne)[1].get<double>() > 0)
        embedding_row = size / (*ne)[1].get<double>();
    } else if (id.find("_exps.weight") != std::string::npos) {
      expert_tensors += size;
    } else {
      shape.bytes += size;
    }
  }
  shape.row_bytes = embedding_row;
  if (!has_output) shape.bytes += embedding;
  if (expert_tensors > 0) {
    shape.experts = metadata_number(inspected, arch + ".expert_count");
    shape.used = metadata_number(inspected, arch + ".expert_used_count");
    if (shape.experts < 1 || shape.used < 1 || shape.used > shape.experts)
      refuse("experts without expert_count and expert_used_count");
    shape.expert_bytes = expert_tensors / static_cast<double>(shape.experts);
  }
  shape.kv = kv_of(inspected, arch);
  if (shape.kv.empty()) refuse("its keys and values are not described by head counts and lengths");
  return shape;
}

std::string inspect_model(const std::string& path) {
  int pipes[2][2];  // its output, its errors
  if (::pipe2(pipes[0], O_CLOEXEC) != 0)
    throw Error(ExitCode::resource, fmt::format("pipe: {}", std::strerror(errno)));
  if (::pipe2(pipes[1], O_CLOEXEC) != 0)
    throw Error(ExitCode::resource, fmt::format("pipe: {}", std::strerror(errno)));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipes[0][1], 1);
  posix_spawn_file_actions_adddup2(&actions, pipes[1][1], 2);
  std::string words[] = {"lockstep", "inspect", "-m", path, "--json"};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(),
                  words[3].data(), words[4].data(), nullptr};
  pid_t child = -1;
  const int error = ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(pipes[0][1]);
  ::close(pipes[1][1]);
  std::string out, said;
  if (error == 0) {
    // Its errors are one line and fit the pipe, so that reading one after the other cannot hang.
    char buffer[1 << 16];
    for (const auto& [from, to] : {std::pair{pipes[0][0], &out}, std::pair{pipes[1][0], &said}}) {
      while (true) {
        const ssize_t n = ::read(from, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0 || to->size() > kMaxOutput) break;
        to->append(buffer, static_cast<size_t>(n));
      }
    }
  }
  ::close(pipes[0][0]);
  ::close(pipes[1][0]);
  if (error != 0)
    throw Error(ExitCode::resource,
                fmt::format("inspect could not be started: {}", std::strerror(error)));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return out;
  while (said.ends_with('\n')) said.pop_back();
  if (said.starts_with("lockstep: ")) said.erase(0, 10);
  if (said.empty()) said = fmt::format("{}: inspect ended without an answer", shorten(path));
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : static_cast<int>(ExitCode::resource);
  throw Error(code == static_cast<int>(ExitCode::bad_use)    ? ExitCode::bad_use
              : code == static_cast<int>(ExitCode::bad_file) ? ExitCode::bad_file
                                                             : ExitCode::resource,
              said);
}

}  // namespace lockstep::lab::roof
