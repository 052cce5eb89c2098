// make_hostile DIR: writes every hostile file there is into DIR, with index.json: a list of
//   {"file": name in DIR, "what": what is wrong, "expect_exit": 3, "commands": ["inspect", "run"]}
// saying which commands must refuse it, each by one line on stderr.
#include <sys/stat.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "gguf/writer.h"
#include "hostile_gguf.h"
#include "hostile_models.h"
#include "raw_gguf.h"

namespace {

using nlohmann::json;
namespace fs = std::filesystem;
using namespace lockstep;

class Collection {
 public:
  explicit Collection(fs::path dir) : dir_(std::move(dir)) { fs::create_directories(dir_); }

  void file(const std::string& name, const std::string& what, std::span<const std::byte> bytes,
            bool inspect_refuses = true) {
    std::ofstream out(dir_ / name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    out.close();
    if (!out) throw std::runtime_error("cannot write " + (dir_ / name).string());
    entry(name, what, inspect_refuses);
  }
  void entry(const std::string& name, const std::string& what, bool inspect_refuses = true) {
    json commands = json::array();
    if (inspect_refuses) commands.push_back("inspect");
    commands.push_back("run");
    index_.push_back({{"file", name}, {"what", what}, {"expect_exit", 3}, {"commands", commands}});
  }
  const fs::path& dir() const { return dir_; }
  size_t finish() const {
    std::ofstream(dir_ / "index.json") << index_.dump(1) << "\n";
    return index_.size();
  }

 private:
  fs::path dir_;
  json index_ = json::array();
};

// What only a file system can hold.
void add_odd_paths(Collection& collection) {
  const fs::path& dir = collection.dir();
  collection.file("empty.gguf", "an empty file", {});
  fs::create_directories(dir / "directory.gguf");
  collection.entry("directory.gguf", "a directory");
  fs::remove(dir / "pipe.gguf");
  if (::mkfifo((dir / "pipe.gguf").c_str(), 0600) == 0) {
    collection.entry("pipe.gguf", "a pipe that nobody writes to");
  }
  fs::remove(dir / "loop.gguf");
  fs::create_symlink("loop.gguf", dir / "loop.gguf");
  collection.entry("loop.gguf", "a link to itself");
  collection.entry("missing.gguf", "a file that is not there");
  const test::RawGguf sparse =
      test::RawGguf().header(0, 1).key("test.list", 9).u32(8).u64(uint64_t{1} << 33);
  collection.file("sparse.gguf", "128 GiB of holes that claim 2^33 strings", sparse.bytes());
  fs::resize_file(dir / "sparse.gguf", uint64_t{1} << 37);
}

void add_split_sets(Collection& collection) {
  const auto part = [](uint64_t no, uint64_t count, const std::string& tensor) {
    gguf::Writer writer;
    writer.add_string("general.architecture", "llama");
    writer.add("split.no", {gguf::ValueType::u16, no});
    writer.add("split.count", {gguf::ValueType::u16, count});
    writer.add_i32("split.tensors.count", 2);
    writer.add_tensor(tensor, gguf::TensorType::f32, {8}, [](std::span<std::byte>) {});
    return writer.to_memory();
  };
  collection.file("lonely-00001-of-00002.gguf", "a split set without its second part",
                  part(0, 2, "a"));
  collection.file("second-00002-of-00002.gguf", "the second part of a split set", part(1, 2, "b"));
  collection.file("mixed-00001-of-00002.gguf", "a split set whose second part is of another",
                  part(0, 2, "a"));
  collection.file("mixed-00002-of-00002.gguf", "a part of a set of three named as one of two",
                  part(1, 3, "b"));
  collection.file("twice-00001-of-00002.gguf", "a split set with one tensor in both parts",
                  part(0, 2, "a"));
  collection.file("twice-00002-of-00002.gguf", "its second part", part(1, 2, "a"));
  collection.file("renamed.gguf", "the first part of a split set under another name",
                  part(0, 2, "a"));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_hostile DIR\n");
    return 2;
  }
  try {
    Collection collection(argv[1]);
    for (const test::HostileFile& file : test::hostile_containers()) {
      collection.file(file.name + ".gguf", file.what, file.bytes);
    }
    for (const test::HostileModel& model : test::hostile_models()) {
      collection.file("model_" + model.file.name + ".gguf", model.file.what, model.file.bytes,
                      model.inspect_refuses);
    }
    add_odd_paths(collection);
    add_split_sets(collection);
    std::printf("%zu hostile files in %s\n", collection.finish(), argv[1]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "make_hostile: %s\n", error.what());
    return 4;
  }
}
