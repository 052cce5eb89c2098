// The golden ceilings (docs/lab-log.md), and shapes that are refused.
#include "lab/roof/roof.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace lockstep::lab::roof {
namespace {

RoofRow only_row(std::string_view shape, RoofOptions options) {
  const Roof roof = compute_roof(parse_shape(shape), options);
  EXPECT_EQ(roof.rows.size(), 1u);
  return roof.rows.at(0);
}

TEST(Roof, Qwen27BAt640) {
  // 640e9 / 17.6e9 = 36.36; with 52,000 positions of 34,816 B: 640e9 / (17.6e9 + 1.810e9) = 32.97.
  const char* shape = "bytes=17.6e9,kv=16x4x256";
  EXPECT_NEAR(only_row(shape, {640, {0}, {1}, {"q8_0"}, {}}).tok_s, 36.4, 0.05);
  const RoofRow deep = only_row(shape, {640, {52000}, {1}, {"q8_0"}, {}});
  EXPECT_NEAR(deep.tok_s, 33.0, 0.05);
  EXPECT_DOUBLE_EQ(deep.kv_bytes, 52000.0 * 34816);
}

TEST(Roof, KvBytesByType) {
  // 2 (keys and values) x 16 x 4 x 256 = 32,768 elements: x 2, x 34/32, x 18/32.
  const Shape shape = parse_shape("bytes=1,kv=16x4x256");
  EXPECT_EQ(kv_bytes_per_position(shape.kv, *find_kv_type("f16")), 65536);
  EXPECT_EQ(kv_bytes_per_position(shape.kv, *find_kv_type("q8_0")), 34816);
  EXPECT_EQ(kv_bytes_per_position(shape.kv, *find_kv_type("q4_0")), 18432);
}

// Gemma 4 26B-A4B at Q8_0: 2,578,676,856 B fixed, 189,573,120 B an expert over 30 layers, 2,992 B a
// row; 25 local layers of 8 x 256 with a window of 1024, 5 global of 2 x 512.
constexpr const char* kGemma4 =
    "bytes=2578676856,row=2992,experts=128/8,expert=189573120,kv=25x8x256w1024+5x2x512";

TEST(Roof, MixtureOfExperts) {
  EXPECT_DOUBLE_EQ(only_row(kGemma4, {1000, {0}, {1}, {"f16"}, {}}).weight_bytes, 4095264808.0);
  EXPECT_DOUBLE_EQ(only_row(kGemma4, {1000, {0}, {8}, {"f16"}, 26}).weight_bytes, 7507601912.0);
  EXPECT_DOUBLE_EQ(only_row(kGemma4, {1000, {0}, {8}, {"f16"}, 64}).weight_bytes, 14711380472.0);
}

TEST(Roof, ExpectedExperts) {
  // 128 (1 - (15/16)^n)
  const double expected[] = {8, 15.5, 22.5, 29.1, 35.3, 41.1, 46.5, 51.6};
  for (int64_t n = 1; n <= 8; ++n)
    EXPECT_NEAR(expected_experts(128, 8, n), expected[n - 1], 0.06) << n;
  const RoofRow row = only_row(kGemma4, {1000, {0}, {8}, {"f16"}, {}});
  EXPECT_NEAR(row.weight_bytes / 1e9, 12.36, 0.005);
}

TEST(Roof, WindowedKv) {
  // 204,800 min(context, 1024) + 20,480 context.
  for (const auto& [context, gb] :
       {std::pair{1024, 0.231}, {4096, 0.294}, {8192, 0.377}, {32768, 0.881}, {131072, 2.894}}) {
    EXPECT_NEAR(only_row(kGemma4, {1000, {context}, {1}, {"f16"}, {}}).kv_bytes / 1e9, gb, 0.0006)
        << context;
  }
}

TEST(Roof, RefusesBadShapes) {
  for (const char* text :
       {"", "kv=16x4x256", "bytes=-1", "bytes=nan", "bytes=1e9,kv=16x4", "bytes=1e9,kv=0x4x256",
        "bytes=1e9,kv=16x4x256w", "bytes=1e9,kv=16x4x256y", "bytes=1e9,experts=128/8",
        "bytes=1e9,expert=5", "bytes=1e9,experts=8/128,expert=5", "bytes=1e9,nose=1", "bytes",
        "bytes=1e9,kv=9999999x9999999x999999"}) {
    EXPECT_THROW(parse_shape(text), Error) << text;
  }
}

TEST(Roof, RefusesWhatCannotBe) {
  const Shape dense = parse_shape("bytes=1e9,kv=2x2x48");
  EXPECT_THROW(compute_roof(dense, {100, {0}, {1}, {"q9"}, {}}), Error);
  EXPECT_THROW(compute_roof(dense, {100, {0}, {1}, {"f16"}, 8}), Error) << "no experts";
  EXPECT_THROW(compute_roof(dense, {100, {0}, {1}, {"q8_0"}, {}}), Error)
      << "48 is no multiple of 32";
  EXPECT_EQ(compute_roof(dense, {100, {0}, {1}, {"q8_0", "f16"}, {}}).notes.size(), 1u);
  const Shape moe = parse_shape(kGemma4);
  EXPECT_THROW(compute_roof(moe, {100, {0}, {2}, {"f16"}, 26}), Error)
      << "two rows meet at most 16";
}

TEST(Roof, ReadsInspect) {
  // Two layers, an output matrix of its own, so that the embedding counts a row only; two experts.
  const char* json = R"({"schema":"lockstep.inspect/1","architecture":"x","metadata":[
    {"key":"x.block_count","value":2},{"key":"x.embedding_length","value":64},
    {"key":"x.attention.head_count","value":4},{"key":"x.attention.head_count_kv","value":{"element_type":"i32","length":2,"elements":[2,1]}},
    {"key":"x.attention.key_length","value":32},{"key":"x.expert_count","value":4},{"key":"x.expert_used_count","value":2}],
   "tensors":[{"name":"token_embd.weight","bytes":1000,"ne":[64,10]},{"name":"output.weight","bytes":500,"ne":[64,10]},
    {"name":"blk.0.ffn_up_exps.weight","bytes":4000,"ne":[1,1,4]},{"name":"blk.0.attn_q.weight","bytes":30,"ne":[1,1]}]})";
  const Shape shape = shape_of_inspected(json, "m.gguf");
  EXPECT_DOUBLE_EQ(shape.bytes, 530);
  EXPECT_DOUBLE_EQ(shape.row_bytes, 100);
  EXPECT_DOUBLE_EQ(shape.expert_bytes, 1000);
  EXPECT_EQ(shape.used, 2);
  ASSERT_EQ(shape.kv.size(), 2u);
  EXPECT_EQ(shape.kv[0].heads, 2);
  EXPECT_EQ(shape.kv[1].key_dim, 32);
  for (const char* bad : {"", "[]", "{}", R"({"schema":"lockstep.inspect/1"})",
                          R"({"schema":"lockstep.inspect/1","tensors":[{}]})"}) {
    EXPECT_THROW(shape_of_inspected(bad, "m.gguf"), Error) << bad;
  }
}

}  // namespace
}  // namespace lockstep::lab::roof
