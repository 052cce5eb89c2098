// KV write and attention, by bits: the law written a second time (plain_law.h), width 1 against
// every width, any partition, every instruction set, page fills, windows and grouped heads.
#include <gtest/gtest.h>

#include "harness.h"
#include "plain_law.h"

namespace lockstep::kernels::test {
namespace {

struct Shape {
  int64_t n_head = 1, n_head_kv = 1, head_dim = 32;
};

// Pages of one layer for positions [0, n), junk where nothing was written.
struct Pages {
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> k, v;
  KvLayerView view;

  Pages(const Shape& s, KvType k_type, KvType v_type, int64_t n) {
    for (int64_t p = 0; p * kPagePositions < n; ++p) {
      for (auto* list : {&k, &v}) {
        const int64_t row = kv_row_bytes(list == &k ? k_type : v_type, s.head_dim);
        memory.emplace_back(static_cast<size_t>(s.n_head_kv * kPagePositions * row),
                            std::byte{0x7F});
        list->push_back(memory.back().data());
      }
    }
    view = {k_type,   v_type,   static_cast<int32_t>(s.n_head_kv), static_cast<int32_t>(s.head_dim),
            k.data(), v.data(), static_cast<int64_t>(k.size())};
  }
};

// A stored row as the law reads it.
std::vector<float> plain_read(KvType type, const std::byte* row, int64_t head_dim) {
  std::vector<float> out;
  for (int64_t i = 0; i < head_dim; ++i) {
    if (type == KvType::f32) {
      out.push_back(read_block<float>(row + 4 * i));
    } else if (type == KvType::f16) {
      out.push_back(f16_to_f32(read_block<uint16_t>(row + 2 * i)));
    } else if (type == KvType::q4_0) {
      const std::byte* block = row + i / 32 * 18;
      const int codes = static_cast<int>(block[2 + i % 16]);
      out.push_back(static_cast<float>((i % 32 < 16 ? codes & 15 : codes >> 4) - 8) *
                    f16_to_f32(read_block<uint16_t>(block)));
    } else {
      const std::byte* block = row + i / 32 * 34;
      out.push_back(static_cast<float>(static_cast<int8_t>(block[2 + i % 32])) *
                    f16_to_f32(read_block<uint16_t>(block)));
    }
  }
  return out;
}

const std::byte* stored_row(const Pages& pages, bool is_v, int64_t head, int64_t position) {
  const KvType type = is_v ? pages.view.v_type : pages.view.k_type;
  const auto& list = is_v ? pages.v : pages.k;
  return list[static_cast<size_t>(position / kPagePositions)] +
         (head * kPagePositions + position % kPagePositions) *
             kv_row_bytes(type, pages.view.head_dim);
}

std::vector<uint8_t> write(const CpuKernels& kernels, Random& random, Pages& pages,
                           const std::vector<float>& k, const std::vector<float>& v, int64_t rows,
                           int64_t first_position) {
  std::vector<uint8_t> fault(static_cast<size_t>(rows));
  const KvWriteArgs args{k.data(), v.data(), rows, first_position, &pages.view, {fault.data()}};
  in_pieces(random, args.items(), [&](Range range) { kernels.kv_write(args, range); });
  return fault;
}

struct Query {
  Shape shape;
  float scale = 0.25f, cap = 0.0f;
  int64_t window = 0;
};

std::vector<float> attend(const CpuKernels& kernels, Random& random, const Query& query,
                          const Pages& pages, const float* q, int64_t rows, int64_t first_position,
                          std::vector<uint8_t>* fault_out = nullptr, bool cut_spans = false,
                          bool change_a_span = false) {
  const Shape& s = query.shape;
  std::vector<float> out(static_cast<size_t>(rows * s.n_head * s.head_dim), -7.0f);
  std::vector<uint8_t> fault(static_cast<size_t>(rows));
  std::vector<std::byte> memory(
      static_cast<size_t>(attention_scratch_bytes(s.head_dim, s.n_head, s.n_head_kv)) + 64,
      std::byte{0x7F});
  auto* scratch =
      reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
  AttentionArgs args{
      q,           out.data(), rows,         first_position, s.n_head,      s.head_dim,
      query.scale, query.cap,  query.window, &pages.view,    {fault.data()}};
  std::vector<float> partials;
  std::vector<int32_t> done;
  if (cut_spans) {
    args.spans = attention_spans(args);
    args.spans.cut = true;
    partials.assign(static_cast<size_t>(
                        args.items() * attention_partial_floats(s.head_dim, s.n_head, s.n_head_kv)),
                    -7.0f);
    done.assign(static_cast<size_t>(args.tiles_and_heads()), 0);
    args.spans.partials = partials.data();
    args.spans.done = done.data();
  }
  if (change_a_span) {
    // The last item merges its tile and head: before it, a part of what the first span left.
    kernels.attention(args, {0, args.items() - 1}, scratch);
    const int64_t of_last = (args.tiles_and_heads() - 1) * args.spans.count;
    float& l = partials[static_cast<size_t>(
        of_last * attention_partial_floats(s.head_dim, s.n_head, s.n_head_kv) + 1)];
    l *= 1.01f;
    kernels.attention(args, {args.items() - 1, args.items()}, scratch);
  } else {
    in_pieces(random, args.items(), [&](Range range) { kernels.attention(args, range, scratch); });
  }
  if (fault_out) *fault_out = fault;
  for (const int32_t left : done) EXPECT_EQ(left, 0);
  return out;
}

Shape random_shape(Random& random, KvType k_type, KvType v_type) {
  const int64_t groups[] = {1, 1, 2, 3, 4, 9};
  Shape s;
  s.n_head_kv = random.between(1, 3);
  s.n_head = s.n_head_kv * groups[random.below(6)];
  const bool blocks = kv_block_elements(k_type) > 1 || kv_block_elements(v_type) > 1;
  const int64_t any[] = {8, 16, 20, 33, 64, 80, 128}, whole[] = {32, 64, 96, 128};
  s.head_dim = blocks ? whole[random.below(4)] : any[random.below(7)];
  return s;
}

TEST(KvWrite, IsTheLaw) {
  Tally tally("kv_write against the law");
  std::vector<std::pair<Control, Q4Knobs>> wrong;
  wrong.push_back({Control("q4_0 by the last of the greatest"), {false, true, true}});
  wrong.push_back({Control("q4_0 by division"), {true, false, true}});
  wrong.push_back({Control("q4_0 by the stored scale"), {true, true, false}});
  Random random(51);
  for (int trial = 0; trial < 400; ++trial) {
    const KvType k_type = kKvTypes[random.below(4)], v_type = kKvTypes[random.below(4)];
    const Shape s = random_shape(random, k_type, v_type);
    const int64_t first = random.below(150), rows = random.between(1, 70);
    const int64_t width = s.n_head_kv * s.head_dim;
    const Kind kind = kAllKinds[trial % 6];
    auto k = random_floats(random, rows * width, kind),
         v = random_floats(random, rows * width, kind);
    for (auto* values : {&k, &v}) {
      for (float& x : *values) x = std::fmin(std::fmax(x, -60000.0f), 60000.0f);
    }
    // The largest values each type takes without a fault.
    k[0] = k_type == KvType::f16    ? 65519.996f
           : k_type == KvType::f32  ? 3.4028235e38f
           : k_type == KvType::q4_0 ? 524159.94f
                                    : 8.3e6f;
    std::vector<Pages> pages;
    for (const CpuKernels* kernels : usable_kernels()) {
      pages.emplace_back(s, k_type, v_type, first + rows);
      for (const uint8_t fault : write(*kernels, random, pages.back(), k, v, rows, first))
        ASSERT_EQ(fault, 0);
      // Junk outside the rows is untouched, too.
      for (size_t m = 0; m < pages[0].memory.size(); ++m) {
        ASSERT_TRUE(same_bits(pages.back().memory[m], pages[0].memory[m]));
        tally.count(static_cast<int64_t>(pages[0].memory[m].size()));
      }
    }
    for (int64_t item = 0; item < rows * s.n_head_kv; ++item) {
      for (const bool is_v : {false, true}) {
        const float* x = (is_v ? v : k).data() + item * s.head_dim;
        const KvType type = is_v ? v_type : k_type;
        const std::byte* row =
            stored_row(pages[0], is_v, item % s.n_head_kv, first + item / s.n_head_kv);
        for (int64_t i = 0; i < s.head_dim; i += kv_block_elements(type)) {
          if (type == KvType::f32) {
            ASSERT_TRUE(same_bits(reinterpret_cast<const float*>(row) + i, x + i, 1));
          } else if (type == KvType::f16) {
            ASSERT_EQ(read_block<uint16_t>(row + 2 * i), f32_to_f16(x[i]));
          } else if (type == KvType::q4_0) {
            int q[32], other[32];
            const uint16_t d = f32_to_f16(plain_quantize_q4(x + i, q));
            const std::byte* block = row + i / 32 * 18;
            ASSERT_EQ(read_block<uint16_t>(block), d);
            for (int j = 0; j < 16; ++j)
              ASSERT_EQ(static_cast<int>(block[2 + j]), q[j] | q[j + 16] << 4);
            for (auto& [control, knobs] : wrong) {
              const uint16_t other_d = f32_to_f16(plain_quantize_q4(x + i, other, knobs));
              control.trial(other_d != d || !std::equal(q, q + 32, other));
            }
          } else {
            int q[32];
            const uint16_t d = f32_to_f16(plain_quantize(x + i, 32, q));
            ASSERT_EQ(read_block<uint16_t>(row + i / 32 * 34), d);
            for (int j = 0; j < 32; ++j)
              ASSERT_EQ(static_cast<int8_t>(row[i / 32 * 34 + 2 + j]), q[j]);
          }
        }
      }
    }
  }
  for (const auto& [control, knobs] : wrong) EXPECT_TRUE(control.seen(0.0001));
}

TEST(KvWrite, EdgesOfQ4) {
  Random random(57);
  for (const CpuKernels* kernels : usable_kernels()) {
    Pages pages({1, 1, 96}, KvType::q4_0, KvType::q4_0, 1);
    std::vector<float> x(96, 0.0f);
    x[3] = 0x1p-100f;                             // the smallest block that counts
    x[32 + 3] = std::nextafter(0x1p-100f, 0.0f);  // the largest that doesn't
    x[64] = -1.0f;                                // the first of two greatest: code 0
    x[64 + 20] = 1.0f;                            // its opposite has no code: cut to 15
    EXPECT_EQ(write(*kernels, random, pages, x, x, 1, 0), (std::vector<uint8_t>{0}));
    const std::byte* row = stored_row(pages, false, 0, 0);
    EXPECT_EQ(read_block<uint16_t>(row), 0x8000);  // f16(d) keeps the sign of what it loses
    EXPECT_EQ(row[2 + 3], std::byte{0x80});
    EXPECT_EQ(read_block<uint16_t>(row + 18), 0);
    for (int i = 0; i < 16; ++i) EXPECT_EQ(row[18 + 2 + i], std::byte{0x88});
    EXPECT_EQ(read_block<uint16_t>(row + 36), 0x3000);
    EXPECT_EQ(row[36 + 2], std::byte{0x80});
    EXPECT_EQ(row[36 + 2 + 4], std::byte{0xF8});
  }
}

TEST(KvWrite, FaultsStayInTheirRowAndLeaveNothingInfinite) {
  Random random(52);
  struct Case {
    KvType type;
    float value;
    bool fault;
  };
  const Case cases[] = {{KvType::f32, INFINITY, true},      {KvType::f32, NAN, true},
                        {KvType::f16, -INFINITY, true},     {KvType::f16, NAN, true},
                        {KvType::f16, 65520.0f, true},      {KvType::f16, -65519.996f, false},
                        {KvType::q8_0, NAN, true},          {KvType::q8_0, INFINITY, true},
                        {KvType::q8_0, 8.4e6f, true},       {KvType::q8_0, -8.3e6f, false},
                        {KvType::q8_0, 3.4e38f, true},      {KvType::q4_0, NAN, true},
                        {KvType::q4_0, -INFINITY, true},    {KvType::q4_0, 524160.0f, true},
                        {KvType::q4_0, -524159.94f, false}, {KvType::q4_0, -3.4e38f, true}};
  for (const CpuKernels* kernels : usable_kernels()) {
    for (const Case& c : cases) {
      for (const bool in_v : {false, true}) {
        const Shape s{2, 2, 64};
        Pages pages(s, c.type, c.type, 3);
        auto k = random_floats(random, 3 * 128, Kind::plain), v = k;
        (in_v ? v : k)[static_cast<size_t>(128 + random.below(128))] = c.value;
        const auto fault = write(*kernels, random, pages, k, v, 3, 0);
        EXPECT_EQ(fault, (std::vector<uint8_t>{0, c.fault, 0}))
            << kv_type_name(c.type) << " " << c.value;
        for (int64_t head = 0; head < 2; ++head) {
          for (const float x : plain_read(c.type, stored_row(pages, in_v, head, 1), 64))
            EXPECT_TRUE(std::isfinite(x));
        }
      }
    }
  }
}

TEST(Attention, IsTheLaw) {
  Tally tally("attention against the law");
  std::vector<std::pair<Control, AttentionKnobs>> wrong;
  wrong.push_back({Control("attention pages of 32"), {32, 32, 16, 0}});
  wrong.push_back({Control("attention spans of 8 pages"), {64, 8, 16, 0}});
  wrong.push_back({Control("attention without pages"), {1 << 20, 1, 16, 0}});
  wrong.push_back({Control("attention 8 lanes"), {64, 16, 8, 0}});
  wrong.push_back({Control("attention window off by one"), {64, 16, 16, 1}});
  Random random(53);
  for (int trial = 0; trial < 240; ++trial) {
    const KvType k_type = kKvTypes[random.below(4)], v_type = kKvTypes[random.below(4)];
    Query query{random_shape(random, k_type, v_type), 0.2f, 0.0f, 0};
    // Some beyond two spans (1,024 positions each).
    const bool far = trial % 12 == 0;
    if (far) query.shape = {2, 1, 32};
    const Shape& s = query.shape;
    const int64_t rows = random.between(1, 20);
    const int64_t first = far ? random.between(1000, 3000) : random.below(200);
    if (random.below(3) == 0) query.cap = 5.0f;
    if (random.below(2)) query.window = random.between(1, far ? 2500 : 150);
    const int64_t n = first + rows, width = s.n_head_kv * s.head_dim;
    const Kind kind = kAllKinds[trial % 6];
    const auto k = random_floats(random, n * width, kind),
               v = random_floats(random, n * width, Kind::plain);
    const auto q = random_floats(random, rows * s.n_head * s.head_dim, Kind::plain);
    std::vector<std::vector<float>> got;
    std::vector<std::vector<float>> keys, values;  // [position·n_head_kv + head]
    for (const CpuKernels* kernels : usable_kernels()) {
      Pages pages(s, k_type, v_type, n);
      write(*kernels, random, pages, k, v, n, 0);
      if (keys.empty()) {
        for (int64_t item = 0; item < n * s.n_head_kv; ++item) {
          const int64_t position = item / s.n_head_kv, head = item % s.n_head_kv;
          keys.push_back(plain_read(k_type, stored_row(pages, false, head, position), s.head_dim));
          values.push_back(plain_read(v_type, stored_row(pages, true, head, position), s.head_dim));
        }
      }
      // Pages that no row sees may be absent.
      for (int64_t p = 0; query.window > 0 && (p + 1) * kPagePositions <= first - query.window + 1;
           ++p) {
        pages.k[static_cast<size_t>(p)] = pages.v[static_cast<size_t>(p)] = nullptr;
      }
      std::vector<uint8_t> fault;
      got.push_back(attend(*kernels, random, query, pages, q.data(), rows, first, &fault));
      for (const uint8_t f : fault) ASSERT_EQ(f, 0);
    }
    for (int64_t row = 0; row < rows; ++row) {
      if (far && row % 7 != 0) continue;
      for (int64_t head = 0; head < s.n_head; ++head) {
        const int64_t kv_head = head / (s.n_head / s.n_head_kv);
        std::vector<const float*> kp, vp;
        for (int64_t j = 0; j < n; ++j) {
          kp.push_back(keys[static_cast<size_t>(j * s.n_head_kv + kv_head)].data());
          vp.push_back(values[static_cast<size_t>(j * s.n_head_kv + kv_head)].data());
        }
        const int64_t at = (row * s.n_head + head) * s.head_dim;
        const auto want = plain_attention(q.data() + at, kp, vp, first + row, s.head_dim,
                                          query.scale, query.cap, query.window);
        for (const auto& out : got) {
          ASSERT_TRUE(same_bits(out.data() + at, want.data(), s.head_dim))
              << "trial " << trial << " row " << row << " head " << head;
          tally.count(s.head_dim);
        }
        if (kind != Kind::plain || first < 130 || s.head_dim < 20) continue;
        for (auto& [control, knobs] : wrong) {
          const bool visible = knobs.window_shift ? query.window > 0 && query.window < first
                               : knobs.span_pages == 8
                                   ? far && (query.window == 0 || query.window > 700)
                               : knobs.page != 64 ? query.window == 0 || query.window > 100
                                                  : true;
          if (!visible) continue;
          const auto other = plain_attention(q.data() + at, kp, vp, first + row, s.head_dim,
                                             query.scale, query.cap, query.window, knobs);
          control.trial(!same_bits(other, want));
        }
      }
    }
  }
  for (const auto& [control, knobs] : wrong) EXPECT_TRUE(control.seen(0.5));
}

// Rows of a wide pass against each row alone in the scalar build; pages partly filled.
TEST(Attention, EveryWidthGivesTheRowsOfWidthOne) {
  Random random(54);
  for (const KvType type : kKvTypes) {
    Tally tally(std::string("attention ") + kv_type_name(type) + " widths");
    for (const int64_t window : {0, 1, 40, 64, 100}) {
      const Query query{{4, 2, 32}, 0.2f, window == 40 ? 3.0f : 0.0f, window};
      const Shape& s = query.shape;
      const int64_t first = random.below(130), most = matrix_widths().back(), n = first + most;
      const auto k = random_floats(random, n * s.n_head_kv * s.head_dim, Kind::mixed);
      const auto v = random_floats(random, n * s.n_head_kv * s.head_dim, Kind::plain);
      const auto q = random_floats(random, most * s.n_head * s.head_dim, Kind::plain);
      Pages pages(s, type, type, n);
      write(*all_cpu_kernels()[0], random, pages, k, v, n, 0);
      const int64_t row_width = s.n_head * s.head_dim;
      std::vector<float> want;
      for (int64_t r = 0; r < most; ++r) {
        const auto row = attend(*all_cpu_kernels()[0], random, query, pages,
                                q.data() + r * row_width, 1, first + r);
        want.insert(want.end(), row.begin(), row.end());
      }
      for (const int64_t width : matrix_widths()) {
        const int64_t start = random.below(most - width + 1);
        for (const CpuKernels* kernels : usable_kernels()) {
          const auto got = attend(*kernels, random, query, pages, q.data() + start * row_width,
                                  width, first + start);
          ASSERT_TRUE(same_bits(got.data(), want.data() + start * row_width, width * row_width))
              << "window " << window << " width " << width << " " << kernels->isa;
          tally.count(width * row_width);
        }
      }
    }
  }
}

// Spans of keys worked on apart, in any order, and merged by whoever is last.
TEST(Attention, SpansApartGiveTheSameBits) {
  Random random(57);
  Tally tally("attention with its spans apart");
  Control control("attention, a span's sum changed by a hundredth");
  for (int trial = 0; trial < 24; ++trial) {
    const int64_t windows[] = {0, 0, 1, 700, 1500};
    const Query query{
        {6, 2, trial % 2 ? 64 : 33}, 0.2f, trial % 5 ? 0.0f : 3.0f, windows[trial % 5]};
    const Shape& s = query.shape;
    const int64_t rows = random.between(1, 20), first = random.between(900, 4200);
    const int64_t n = first + rows;
    const auto k = random_floats(random, n * s.n_head_kv * s.head_dim, Kind::plain);
    const auto v = random_floats(random, n * s.n_head_kv * s.head_dim, Kind::plain);
    const auto q = random_floats(random, rows * s.n_head * s.head_dim, Kind::plain);
    Pages pages(s, KvType::f16, KvType::f16, n);
    write(*all_cpu_kernels()[0], random, pages, k, v, n, 0);
    const auto want = attend(*all_cpu_kernels()[0], random, query, pages, q.data(), rows, first);
    for (const CpuKernels* kernels : usable_kernels()) {
      const auto got = attend(*kernels, random, query, pages, q.data(), rows, first, nullptr, true);
      ASSERT_TRUE(same_bits(got, want)) << kernels->isa << " rows " << rows << " first " << first;
      tally.count(static_cast<int64_t>(got.size()));
    }
    if (query.window > 0 || first < 1100) continue;  // perhaps one span
    const auto changed = attend(*all_cpu_kernels()[0], random, query, pages, q.data(), rows, first,
                                nullptr, true, true);
    control.trial(!same_bits(changed, want));
  }
  EXPECT_TRUE(control.seen(0.9));
}

TEST(Attention, AScoreThatOverflowsIsAFaultOfItsRow) {
  Random random(55);
  for (const CpuKernels* kernels : usable_kernels()) {
    const Query query{{2, 1, 32}, 1.0f, 0.0f, 0};
    Pages pages(query.shape, KvType::f32, KvType::f32, 80);
    const auto k = random_floats(random, 80 * 32, Kind::plain);
    write(*kernels, random, pages, k, k, 80, 0);
    auto q = random_floats(random, 3 * 64, Kind::plain);
    q[64 + 5] = 3e38f;
    q[64 + 6] = 3e38f;
    std::vector<uint8_t> fault;
    const auto got = attend(*kernels, random, query, pages, q.data(), 3, 77, &fault);
    EXPECT_EQ(fault, (std::vector<uint8_t>{0, 1, 0}));
    q[64 + 5] = NAN;
    attend(*kernels, random, query, pages, q.data(), 3, 77, &fault);
    EXPECT_EQ(fault, (std::vector<uint8_t>{0, 1, 0}));
    for (int i = 0; i < 64; ++i) EXPECT_TRUE(std::isfinite(got[static_cast<size_t>(i)]));
  }
}

// Against a softmax in binary64.
TEST(Attention, IsNearTheBinary64Softmax) {
  Random random(56);
  const Query query{{2, 1, 64}, 0.125f, 0.0f, 0};
  Pages pages(query.shape, KvType::f32, KvType::f32, 300);
  const auto k = random_floats(random, 300 * 64, Kind::plain),
             v = random_floats(random, 300 * 64, Kind::plain);
  write(*usable_kernels().back(), random, pages, k, v, 300, 0);
  const auto q = random_floats(random, 128, Kind::plain);
  const auto got = attend(*usable_kernels().back(), random, query, pages, q.data(), 1, 299);
  for (int64_t head = 0; head < 2; ++head) {
    std::vector<double> weight;
    double sum = 0;
    for (int64_t j = 0; j < 300; ++j) {
      double s = 0;
      for (int64_t d = 0; d < 64; ++d)
        s += static_cast<double>(q[static_cast<size_t>(head * 64 + d)]) *
             k[static_cast<size_t>(j * 64 + d)];
      weight.push_back(std::exp(s * 0.125));
      sum += weight.back();
    }
    for (int64_t d = 0; d < 64; ++d) {
      double o = 0;
      for (int64_t j = 0; j < 300; ++j)
        o += weight[static_cast<size_t>(j)] / sum * v[static_cast<size_t>(j * 64 + d)];
      EXPECT_NEAR(got[static_cast<size_t>(head * 64 + d)], o, 2e-5);
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::test
