#include "hostile_gguf.h"

#include <cstdint>
#include <limits>
#include <utility>

#include "raw_gguf.h"

namespace lockstep::test {
namespace {

constexpr uint64_t kMax64 = std::numeric_limits<uint64_t>::max();

// Where the borders of sound_gguf() lie.
struct Sound {
  RawGguf raw;
  size_t first_key, bool_value, array_elements, first_tensor, dimensions, data;
};

Sound sound() {
  Sound s{};
  s.raw.header(2, 4);
  s.first_key = s.raw.bytes().size();
  s.raw.string_key("general.architecture", "llama");
  s.raw.u32_key("llama.block_count", 1);
  s.raw.key("test.flag", 7);
  s.bool_value = s.raw.bytes().size();
  s.raw.u8(1);
  s.raw.key("test.list", 9).u32(5).u64(3);
  s.array_elements = s.raw.bytes().size();
  s.raw.u32(1).u32(2).u32(3);
  s.first_tensor = s.raw.bytes().size();
  s.raw.tensor("a.weight", {8}, 0, 0);
  s.dimensions = s.first_tensor + 8 + 8 + 4;
  s.raw.tensor("b.weight", {32, 2}, 8, 32);
  s.raw.pad(32);
  s.data = s.raw.bytes().size();
  s.raw.zeros(32 + 68 + 28);
  return s;
}

std::vector<std::byte> cut(const std::vector<std::byte>& bytes, size_t size) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)};
}

class List {
 public:
  void add(std::string name, std::string what, const std::vector<std::byte>& bytes,
           std::vector<std::string> expect) {
    files_.push_back({std::move(name), std::move(what), bytes, std::move(expect)});
  }
  // One key, no tensors; `value` puts down everything after the key's name.
  template <typename Put>
  void add_key(std::string name, std::string what, std::string_view key, Put value,
               std::vector<std::string> expect) {
    RawGguf raw;
    raw.header(0, 1).text(key);
    value(raw);
    add(std::move(name), std::move(what), raw.bytes(), std::move(expect));
  }
  // No keys, one tensor description as `put` writes it, and 4 KiB of data.
  template <typename Put>
  void add_tensor(std::string name, std::string what, Put put, std::vector<std::string> expect,
                  uint64_t n_tensors = 1) {
    RawGguf raw;
    raw.header(n_tensors, 0);
    put(raw);
    raw.pad(32).zeros(4096);
    add(std::move(name), std::move(what), raw.bytes(), std::move(expect));
  }
  std::vector<HostileFile> take() { return std::move(files_); }

 private:
  std::vector<HostileFile> files_;
};

void add_framing(List& list) {
  const Sound s = sound();
  const auto& bytes = s.raw.bytes();
  list.add("three_bytes", "only three bytes", cut(bytes, 3), {"ends inside the magic", "byte 0"});
  list.add("magic_ggml", "the magic of a format long gone",
           RawGguf().letters("ggml").zeros(64).bytes(), {"not a GGUF file", "ggml"});
  list.add("magic_elf", "a program",
           RawGguf()
               .letters("\x7F"
                        "ELF")
               .zeros(64)
               .bytes(),
           {"not a GGUF file", "\\x7FELF"});
  list.add("magic_html", "an error page saved as a model",
           RawGguf().letters("<!DOCTYPE html><html></html>").bytes(), {"not a GGUF file", "<!DO"});
  list.add("zeros", "4096 zero bytes", RawGguf().zeros(4096).bytes(), {"not a GGUF file"});
  list.add("version_0", "version 0", RawGguf().header(0, 0, 0).bytes(), {"version 0"});
  list.add("version_1", "version 1",
           RawGguf().letters("GGUF").u32(1).u32(0).u32(0).zeros(16).bytes(),
           {"GGUF version 1", "convert it again"});
  list.add("version_4", "version 4", RawGguf().header(0, 0, 4).bytes(), {"version 4", "2 and 3"});
  list.add("version_99", "version 99", RawGguf().header(0, 0, 99).bytes(), {"version 99"});
  list.add("big_endian", "a big-endian file", RawGguf().header(0, 0, 0x03000000).bytes(),
           {"big-endian"});
  list.add("cut_after_magic", "the file ends after the magic", cut(bytes, 4),
           {"ends inside the version", "byte 4"});
  list.add("cut_in_version", "the file ends inside the version", cut(bytes, 6),
           {"ends inside the version"});
  list.add("cut_after_version", "the file ends after the version", cut(bytes, 8),
           {"tensor count", "byte 8"});
  list.add("cut_in_key_count", "the file ends inside the key count", cut(bytes, 20),
           {"key count", "byte 16"});
  list.add("cut_after_header", "the file ends after the header", cut(bytes, s.first_key),
           {"claims 4 metadata keys", "0 bytes"});
  list.add("cut_in_key_name", "the file ends inside a key's name",
           cut(bytes, s.array_elements - 20), {"metadata key 4 of 4", "cut short"});
  list.add("cut_in_array", "the file ends inside an array", cut(bytes, s.array_elements + 5),
           {"test.list", "claims 3 elements"});
  list.add("cut_before_tensors", "the file ends before the tensors", cut(bytes, s.first_tensor),
           {"tensor 1 of 2"});
  list.add("cut_in_tensor_name", "the file ends inside a tensor's name",
           cut(bytes, s.first_tensor + 11), {"tensor 1 of 2", "cut short"});
  list.add("cut_in_dimensions", "the file ends inside a dimension", cut(bytes, s.dimensions + 3),
           {"a.weight", "inside a dimension"});
  list.add("cut_in_tensor_type", "the file ends inside a tensor's type",
           cut(bytes, s.dimensions + 10), {"a.weight", "its type"});
  list.add("cut_in_offset", "the file ends inside a tensor's offset", cut(bytes, s.dimensions + 17),
           {"a.weight", "its offset"});
  list.add("cut_before_data", "the file ends before the tensor data", cut(bytes, s.data),
           {"tensor data", "the file ends at"});
  list.add("cut_in_data", "the last tensor lacks one byte", cut(bytes, s.data + 32 + 67),
           {"b.weight", "68 bytes at offset 32"});
}

void add_metadata(List& list) {
  list.add("key_count_max", "2^64-1 keys", RawGguf().header(0, kMax64).zeros(256).bytes(),
           {"18446744073709551615 metadata keys", "256 bytes"});
  list.add("key_count_lie", "one key more than there is",
           RawGguf().header(0, 2).u32_key("a", 1).zeros(20).bytes(), {"metadata key 2 of 2"});
  list.add("key_length_lie", "a key's name longer than the file",
           RawGguf().header(0, 1).u64(1000).zeros(64).bytes(),
           {"metadata key 1 of 1", "claims 1000 bytes"});
  list.add("key_length_max", "a key's name of 2^64-1 bytes",
           RawGguf().header(0, 1).u64(kMax64).zeros(64).bytes(),
           {"metadata key 1 of 1", "claims 18446744073709551615 bytes"});
  list.add_key("key_empty", "a key without a name", "", [](RawGguf& raw) { raw.u32(4).zeros(8); },
               {"name is empty"});
  list.add_key("key_too_long", "a key's name past 65535 bytes", std::string(65536, 'k'),
               [](RawGguf& raw) { raw.u32(4).u32(0); }, {"65536 bytes", "the limit is 65535"});
  list.add_key("key_bad_utf8", "a key that is not UTF-8", "general.\xC3\x28",
               [](RawGguf& raw) { raw.u32(4).u32(0); }, {"general.\\xC3(", "not printable UTF-8"});
  list.add_key("key_control", "a key that would move the cursor", "general.\x1B[2Jname",
               [](RawGguf& raw) { raw.u32(4).u32(0); }, {"\\x1B[2J", "not printable UTF-8"});
  list.add_key("key_newline", "a key with a line break", "general\nname",
               [](RawGguf& raw) { raw.u32(4).u32(0); }, {"general\\nname"});
  list.add_key("value_type_13", "value type 13", "test.key",
               [](RawGguf& raw) { raw.u32(13).zeros(16); }, {"test.key", "value type 13"});
  list.add_key("value_type_max", "value type 2^32-1", "test.key",
               [](RawGguf& raw) { raw.u32(0xFFFFFFFF).zeros(16); },
               {"test.key", "value type 4294967295"});
  list.add_key("cut_in_value_type", "the file ends inside a value's type", "test.long_key_name",
               [](RawGguf& raw) { raw.u8(4); }, {"test.long_key_name", "ends inside its type"});
  list.add_key("cut_in_u32", "the file ends inside a u32", "test.key",
               [](RawGguf& raw) { raw.u32(4).u8(1).u8(0); },
               {"test.key", "ends inside a u32", "2 left"});
  list.add_key("cut_in_f64", "the file ends inside an f64", "test.key",
               [](RawGguf& raw) { raw.u32(12).u32(1); }, {"test.key", "ends inside an f64"});
  list.add_key("string_length_lie", "a string longer than the file", "test.key",
               [](RawGguf& raw) { raw.u32(8).u64(100).letters("short"); },
               {"test.key", "claims 100 bytes, but 5"});
  list.add_key("string_length_max", "a string of 2^64-1 bytes", "test.key",
               [](RawGguf& raw) { raw.u32(8).u64(kMax64).letters("short"); },
               {"test.key", "claims 18446744073709551615"});
  list.add_key("cut_in_string_length", "the file ends inside a string's length", "test.key",
               [](RawGguf& raw) { raw.u32(8).u32(1); }, {"test.key", "ends inside a string"});
  list.add_key("bool_2", "a bool that is 2", "test.flag", [](RawGguf& raw) { raw.u32(7).u8(2); },
               {"test.flag", "a bool is 2"});
  list.add_key("bool_255_in_array", "a bool in an array that is 255", "test.flags",
               [](RawGguf& raw) { raw.u32(9).u32(7).u64(3).u8(0).u8(1).u8(255); },
               {"test.flags", "a bool is 255"});
  list.add_key("array_type_13", "an array of value type 13", "test.list",
               [](RawGguf& raw) { raw.u32(9).u32(13).u64(1).zeros(16); },
               {"test.list", "element type 13"});
  list.add_key("array_count_overflow", "2^61 elements of 8 bytes", "test.list",
               [](RawGguf& raw) { raw.u32(9).u32(10).u64(uint64_t{1} << 61).zeros(64); },
               {"test.list", "2305843009213693952 elements"});
  list.add_key("array_count_max", "2^64-1 bytes", "test.list",
               [](RawGguf& raw) { raw.u32(9).u32(0).u64(kMax64).zeros(64); },
               {"test.list", "18446744073709551615 elements"});
  list.add_key("array_strings_lie", "more strings than their lengths could take", "test.list",
               [](RawGguf& raw) { raw.u32(9).u32(8).u64(1000).zeros(7999); },
               {"test.list", "claims 1000 elements"});
  list.add_key("array_string_length_lie", "a string in an array longer than the file", "test.list",
               [](RawGguf& raw) { raw.u32(9).u32(8).u64(2).text("fine").u64(500).zeros(3); },
               {"test.list", "claims 500 bytes, but 3"});
  list.add_key("array_nested_5", "arrays nested five deep", "test.list",
               [](RawGguf& raw) {
                 raw.u32(9);
                 for (int depth = 0; depth < 4; ++depth) raw.u32(9).u64(1);
                 raw.u32(0).u64(1).u8(7);
               },
               {"test.list", "nested deeper than 4"});
  list.add_key("array_nested_1000", "arrays nested a thousand deep", "test.list",
               [](RawGguf& raw) {
                 raw.u32(9);
                 for (int depth = 0; depth < 1000; ++depth) raw.u32(9).u64(1);
                 raw.u32(0).u64(0);
               },
               {"test.list", "nested deeper than 4"});
  list.add_key("array_nested_bomb", "2^40 arrays in an array", "test.list",
               [](RawGguf& raw) { raw.u32(9).u32(9).u64(uint64_t{1} << 40).zeros(1200); },
               {"test.list", "1099511627776 elements"});
  list.add_key("array_cut_in_length", "the file ends inside an array's length", "test.list",
               [](RawGguf& raw) { raw.u32(9).u32(4).u32(1); }, {"test.list", "an array's length"});
  list.add("key_twice", "the same key twice",
           RawGguf().header(0, 3).u32_key("x", 1).u32_key("y", 1).u32_key("x", 2).bytes(),
           {"\"x\"", "there twice"});

  const auto aligned = [](uint32_t alignment) {
    return RawGguf()
        .header(1, 1)
        .u32_key("general.alignment", alignment)
        .tensor("a", {8}, 0, 0)
        .pad(32)
        .zeros(64)
        .bytes();
  };
  list.add("alignment_0", "alignment 0", aligned(0), {"general.alignment", "is 0"});
  list.add("alignment_3", "alignment 3", aligned(3), {"general.alignment", "is 3"});
  list.add("alignment_4", "alignment below the 8 of the specification", aligned(4),
           {"general.alignment", "is 4", "at least 8"});
  list.add("alignment_24", "an alignment that is no power of two", aligned(24),
           {"general.alignment", "is 24"});
  list.add("alignment_2_31", "alignment 2^31", aligned(0x80000000),
           {"tensor data", "begin at byte 2147483648"});
  list.add("alignment_string", "an alignment that is a string",
           RawGguf().header(0, 1).string_key("general.alignment", "32").bytes(),
           {"general.alignment", "is string"});
  list.add("alignment_u64", "an alignment that is a u64",
           RawGguf().header(0, 1).key("general.alignment", 10).u64(32).bytes(),
           {"general.alignment", "is u64"});
  list.add("split_part", "part 3 of a split set by itself",
           RawGguf()
               .header(0, 3)
               .key("split.no", 2)
               .put(uint16_t{2})
               .key("split.count", 2)
               .put(uint16_t{5})
               .key("split.tensors.count", 5)
               .u32(9)
               .bytes(),
           {"set"});
  list.add("split_count_string", "a split count that is a string",
           RawGguf().header(0, 1).string_key("split.count", "5").bytes(),
           {"split.count", "string"});
}

void add_tensors(List& list) {
  list.add("tensor_count_max", "2^64-1 tensors", RawGguf().header(kMax64, 0).zeros(330).bytes(),
           {"18446744073709551615 tensors", "330 bytes"});
  list.add_tensor(
      "tensor_count_lie", "a tensor more than there is",
      [](RawGguf& raw) { raw.tensor("a", {8}, 0, 0); }, {"tensor 2 of 2", "name is empty"}, 2);
  list.add_tensor("tensor_name_empty", "a tensor without a name",
                  [](RawGguf& raw) { raw.tensor("", {8}, 0, 0); },
                  {"tensor 1 of 1", "name is empty"});
  list.add_tensor("tensor_name_lie", "a tensor's name longer than the file",
                  [](RawGguf& raw) { raw.u64(100000); }, {"tensor 1 of 1", "claims 100000 bytes"});
  list.add_tensor("tensor_name_65", "a tensor's name of 65 bytes",
                  [](RawGguf& raw) { raw.tensor(std::string(65, 't'), {8}, 0, 0); },
                  {"65 bytes", "the limit is 64"});
  list.add_tensor("tensor_name_bad_utf8", "a tensor's name that is not UTF-8",
                  [](RawGguf& raw) { raw.tensor("blk\xFF", {8}, 0, 0); },
                  {"blk\\xFF", "not printable UTF-8"});
  list.add_tensor("tensor_name_control", "a tensor's name with a bell",
                  [](RawGguf& raw) { raw.tensor("blk\a", {8}, 0, 0); }, {"blk\\x07"});
  list.add_tensor(
      "tensor_twice", "two tensors of one name",
      [](RawGguf& raw) { raw.tensor("a", {8}, 0, 0).tensor("a", {8}, 0, 32); },
      {"\"a\"", "there twice"}, 2);
  list.add_tensor("dims_0", "no dimensions", [](RawGguf& raw) { raw.tensor("a", {}, 0, 0); },
                  {"\"a\"", "has 0 dimensions"});
  list.add_tensor("dims_5", "five dimensions",
                  [](RawGguf& raw) {
                    raw.tensor("a", {2, 2, 2, 2, 2}, 0, 0);
                  },
                  {"\"a\"", "has 5 dimensions"});
  list.add_tensor("dims_max", "2^32-1 dimensions",
                  [](RawGguf& raw) { raw.text("a").u32(0xFFFFFFFF); },
                  {"\"a\"", "has 4294967295 dimensions"});
  list.add_tensor("dim_zero", "a dimension of 0",
                  [](RawGguf& raw) {
                    raw.tensor("a", {32, 0}, 0, 0);
                  },
                  {"\"a\"", "dimension 1 is 0"});
  list.add_tensor("dim_2_63", "a dimension of 2^63",
                  [](RawGguf& raw) { raw.tensor("a", {uint64_t{1} << 63}, 0, 0); },
                  {"\"a\"", "dimension 0 is 9223372036854775808"});
  list.add_tensor("dim_minus_1", "a dimension of -1",
                  [](RawGguf& raw) {
                    raw.tensor("a", {8, kMax64}, 0, 0);
                  },
                  {"\"a\"", "dimension 1 is 18446744073709551615"});
  list.add_tensor("product_2_64", "dimensions whose product is 2^64, which wraps to 0",
                  [](RawGguf& raw) {
                    raw.tensor("a", {uint64_t{1} << 32, uint64_t{1} << 32}, 0, 0);
                  },
                  {"\"a\"", "overflows"});
  list.add_tensor("product_4_dims", "four dimensions whose product wraps",
                  [](RawGguf& raw) {
                    raw.tensor("a", {65536, 65536, 65536, 65536}, 0, 0);
                  },
                  {"\"a\"", "overflows"});
  list.add_tensor("product_wraps_small", "dimensions whose product wraps to a few elements",
                  [](RawGguf& raw) {
                    raw.tensor("a", {(uint64_t{1} << 62) + 1, 4}, 0, 0);
                  },
                  {"\"a\"", "overflows"});
  list.add_tensor("bytes_overflow", "2^61 elements of 8 bytes",
                  [](RawGguf& raw) { raw.tensor("a", {uint64_t{1} << 61}, 28, 0); },
                  {"\"a\"", "size in bytes overflows"});
  list.add_tensor("bytes_past_file", "a tensor larger than the file",
                  [](RawGguf& raw) { raw.tensor("a", {uint64_t{1} << 40}, 0, 0); },
                  {"\"a\"", "needs 4398046511104 bytes"});
  list.add_tensor("type_removed", "a type number that ggml has withdrawn",
                  [](RawGguf& raw) { raw.tensor("a", {32}, 4, 0); }, {"\"a\"", "type number 4"});
  list.add_tensor("type_unknown", "type number 77",
                  [](RawGguf& raw) { raw.tensor("a", {32}, 77, 0); }, {"\"a\"", "type number 77"});
  list.add_tensor("type_max", "type number 2^32-1",
                  [](RawGguf& raw) { raw.tensor("a", {32}, 0xFFFFFFFF, 0); },
                  {"\"a\"", "type number 4294967295"});
  list.add_tensor("partial_block_q8_0", "rows of 33 in blocks of 32",
                  [](RawGguf& raw) { raw.tensor("a", {33}, 8, 0); },
                  {"\"a\"", "rows of 33", "q8_0"});
  list.add_tensor("partial_block_q4_k", "rows of 128 in blocks of 256",
                  [](RawGguf& raw) {
                    raw.tensor("a", {128, 2}, 12, 0);
                  },
                  {"\"a\"", "rows of 128", "q4_K"});
  list.add_tensor("offset_misaligned", "an offset of 4",
                  [](RawGguf& raw) { raw.tensor("a", {8}, 0, 4); },
                  {"\"a\"", "offset 4 is not a multiple"});
  list.add_tensor("offset_past_end", "an offset past the end",
                  [](RawGguf& raw) { raw.tensor("a", {8}, 0, 8192); }, {"\"a\"", "at offset 8192"});
  list.add_tensor("offset_at_end", "an offset at the end",
                  [](RawGguf& raw) { raw.tensor("a", {8}, 0, 4096); }, {"\"a\"", "at offset 4096"});
  list.add_tensor("offset_wraps", "an offset that wraps round when the size is added",
                  [](RawGguf& raw) { raw.tensor("a", {8}, 0, kMax64 - 31); },
                  {"\"a\"", "at offset 18446744073709551584"});
  list.add_tensor(
      "overlap_same", "two tensors at one offset",
      [](RawGguf& raw) { raw.tensor("a", {8}, 0, 0).tensor("b", {8}, 0, 0); },
      {"\"a\"", "\"b\"", "overlap"}, 2);
  list.add_tensor(
      "overlap_partly", "a tensor that begins inside another",
      [](RawGguf& raw) { raw.tensor("a", {8}, 0, 64).tensor("b", {24}, 0, 0); },
      {"\"a\"", "\"b\"", "overlap"}, 2);
  list.add_tensor(
      "overlap_inside", "a tensor wholly inside another",
      [](RawGguf& raw) { raw.tensor("a", {512}, 0, 0).tensor("b", {8}, 0, 1024); },
      {"\"a\"", "\"b\"", "overlap"}, 2);
}

}  // namespace

std::vector<std::byte> sound_gguf() {
  return sound().raw.bytes();
}

std::vector<HostileFile> hostile_containers() {
  List list;
  add_framing(list);
  add_metadata(list);
  add_tensors(list);
  return list.take();
}

}  // namespace lockstep::test
