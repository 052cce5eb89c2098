// Dequantised values against the law's vectors, bit for bit.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "gguf/types.h"
#include "quant/dequantize.h"

namespace lockstep::quant {
namespace {

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<uint32_t> from_words(const std::string& text) {
  std::vector<uint32_t> words;
  std::istringstream in(text);
  for (std::string word; in >> word;)
    words.push_back(static_cast<uint32_t>(std::stoul(word, nullptr, 16)));
  return words;
}

TEST(WeightTypeVectors, EveryCodedTypeToTheBit) {
  std::ifstream in(LOCKSTEP_SOURCE_DIR "/tests/law/vectors/weight_types.json");
  ASSERT_TRUE(in) << "the vectors are missing";
  const nlohmann::json vectors = nlohmann::json::parse(in);
  int types = 0, blocks = 0;
  for (const auto& entry : vectors.at("types")) {
    const auto* info = gguf::type_info(entry.at("gguf_type").get<uint32_t>());
    ASSERT_NE(info, nullptr);
    EXPECT_EQ(entry.at("name"), info->name);
    EXPECT_EQ(entry.at("block_elements"), info->block_elements);
    EXPECT_EQ(entry.at("block_bytes"), info->block_bytes);
    ASSERT_TRUE(is_supported(info->type)) << info->name;
    ++types;
    std::vector<std::byte> row;
    std::vector<uint32_t> expected;
    for (const auto& block : entry.at("blocks")) {
      const std::vector<std::byte> bytes = from_hex(block.at("bytes"));
      const std::vector<uint32_t> values = from_words(block.at("values"));
      ASSERT_EQ(bytes.size(), static_cast<size_t>(info->block_bytes));
      ASSERT_EQ(values.size(), static_cast<size_t>(info->block_elements));
      row.insert(row.end(), bytes.begin(), bytes.end());
      expected.insert(expected.end(), values.begin(), values.end());
      ++blocks;
    }
    std::vector<float> got(expected.size());
    dequantize_row(info->type, row.data(), got.data(), static_cast<int64_t>(got.size()));
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), expected[i]) << info->name << " element " << i;
    }
  }
  EXPECT_EQ(types, 16);
  EXPECT_EQ(blocks, 48);
}

}  // namespace
}  // namespace lockstep::quant
