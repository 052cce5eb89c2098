// Keys and values into their pages and attention over them, against the scalar reference, by bits:
// every pair of KV types, odd head sizes, windows, and all ways in which attention is launched.
#include <algorithm>
#include <cmath>
#include <deque>

#include "conformance.h"

namespace lockstep::kernels::cuda::test {
namespace {

using namespace kernels::test;  // NOLINT: the helpers of tests/kernels

// Pages of one layer on the CPU and the same on the device.
class PagesOfBoth {
 public:
  PagesOfBoth(const std::shared_ptr<Device>& device, int64_t n_head_kv, int64_t head_dim,
              KvType k_type, KvType v_type, int64_t positions) {
    for (int64_t p = 0; p * kPagePositions < positions; ++p) {
      for (const bool is_v : {false, true}) {
        const int64_t bytes =
            n_head_kv * kPagePositions * kv_row_bytes(is_v ? v_type : k_type, head_dim);
        const std::vector<std::byte> junk(static_cast<size_t>(bytes), std::byte{0x7F});
        memory_.push_back(junk);
        device_memory_.emplace_back(device, junk);
        (is_v ? v_ : k_).push_back(memory_.back().data());
        (is_v ? device_v_ : device_k_).push_back(device_memory_.back().get());
      }
    }
    // Room for whole units, as the backend's lists have.
    device_k_.resize(device_k_.size() + 2 * kSpanPages);
    device_v_.resize(device_v_.size() + 2 * kSpanPages);
    k_list_ = std::make_unique<OnDevice<std::byte*>>(device, device_k_);
    v_list_ = std::make_unique<OnDevice<std::byte*>>(device, device_v_);
    view = {k_type,    v_type,    static_cast<int32_t>(n_head_kv), static_cast<int32_t>(head_dim),
            k_.data(), v_.data(), static_cast<int64_t>(k_.size())};
    device_view = {k_type, v_type, view.n_head_kv, view.head_dim, k_list_->get(), v_list_->get()};
  }
  bool same() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      if (device_memory_[i].values() != memory_[i] || !device_memory_[i].guard_holds())
        return false;
    }
    return true;
  }

  KvLayerView view;
  DeviceKv device_view;

 private:
  std::deque<std::vector<std::byte>> memory_;
  std::deque<OnDevice<std::byte>> device_memory_;
  std::vector<std::byte*> k_, v_, device_k_, device_v_;
  std::unique_ptr<OnDevice<std::byte*>> k_list_, v_list_;
};

// How the pages come together: each page apart and merged at once, apart and joined to spans first,
// or spans from the start.
enum class Way { pages, joined, spans };
constexpr Way kWays[] = {Way::pages, Way::joined, Way::spans};
// Pages are merged at once where they are of one span.
bool way_fits(Way way, int64_t positions) {
  return way != Way::pages || positions <= kSpanPages * kPagePositions;
}

// Units' sums made by `units`, which is complete but for them, and what they merge to.
std::vector<float> attention_there(const std::shared_ptr<Device>& device, AttentionUnitsArgs units,
                                   Way way, int64_t positions, int64_t spare_units) {
  const DeviceKernels& kernels = device->kernels();
  const auto floats_of = [&](int64_t n) {
    return units.rows * units.n_head * n * partial_floats(units.head_dim);
  };
  units.unit_pages = way == Way::spans ? kSpanPages : 1;
  const int64_t unit_positions = kPagePositions * units.unit_pages;
  units.units = (positions + unit_positions - 1) / unit_positions + spare_units;
  const OnDevice<float> partials(device, floats_of(units.units));
  units.partials = partials.get();
  kernels.attention_units(units, device->stream());
  AttentionMergeArgs merge;
  merge.partials = partials.get();
  merge.rows = units.rows;
  merge.n_head = units.n_head;
  merge.head_dim = units.head_dim;
  merge.window = units.window;
  merge.place = units.place;
  merge.unit_pages = units.unit_pages;
  merge.units = units.units;
  const int64_t spans = (units.units + kSpanPages - 1) / kSpanPages;
  const OnDevice<float> joined(device, floats_of(spans));
  if (way == Way::joined) {
    kernels.attention_join({partials.get(), units.rows, units.n_head, units.head_dim, units.window,
                            units.place, units.units, spans, joined.get()},
                           device->stream());
    merge.partials = joined.get();
    merge.unit_pages = kSpanPages;
    merge.units = spans;
  }
  const OnDevice<float> out(device, units.rows * units.n_head * units.head_dim);
  merge.out = out.get();
  kernels.attention_merge(merge, device->stream());
  EXPECT_TRUE(partials.guard_holds() && joined.guard_holds() && out.guard_holds());
  return out.values();
}

// Of so few that pages of binary16 come through rings, several a block; or of so many that none do.
int any_processors(Random& random) {
  return random.below(2) == 0 ? static_cast<int>(random.between(1, 4)) : 1 << 20;
}

std::vector<std::byte> scratch_of(int64_t head_dim, int64_t n_head, int64_t n_head_kv) {
  return std::vector<std::byte>(
      static_cast<size_t>(attention_scratch_bytes(head_dim, n_head, n_head_kv)) + 64);
}
std::byte* aligned(std::vector<std::byte>& memory) {
  return reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
}

TEST_F(Cuda, KvWriteAndAttention) {
  Random random(54);
  const float bad[] = {INFINITY, NAN, 65520.0f, -524160.0f, 8.4e6f};
  for (const KvType k_type : kKvTypes) {
    Tally wrote(std::string("cuda kv_write ") + kv_type_name(k_type));
    Tally tally(std::string("cuda attention ") + kv_type_name(k_type));
    Control other("cuda attention of a query one bit off");
    for (const KvType v_type : kKvTypes) {
      const bool halves =
          k_type == KvType::f16 && v_type == KvType::f16;  // which have most kernels
      for (int64_t trial = 0; trial < trials(24, halves ? 8 : 2); ++trial) {
        const int64_t n_head_kv = random.between(1, 3), group = random.between(1, 4);
        const int64_t any[] = {8, 16, 20, 33, 64, 80, 128, 256}, whole[] = {32, 64, 96, 128};
        const bool blocks = kv_block_elements(k_type) > 1 || kv_block_elements(v_type) > 1;
        const int64_t head_dim =
            blocks ? whole[random.below(4)] : any[random.below(few_trials() ? 5 : 8)];
        const int64_t n_head = n_head_kv * group, row_width = n_head * head_dim;
        // Several spans once on the emulation, too.
        const bool spans = few_trials() && trial == 0 && halves;
        const int64_t before = spans            ? 1100
                               : few_trials()   ? random.below(140)
                               : trial % 8 == 0 ? random.between(1000, 2200)
                                                : random.below(300);
        const int64_t rows = few_trials() ? random.between(1, 3) : random.between(1, 70);
        const int64_t n = before + rows, width = n_head_kv * head_dim;
        PagesOfBoth pages(device_, n_head_kv, head_dim, k_type, v_type, n);
        const Kind kind = kAllKinds[trial % 6];
        auto k = random_floats(random, n * width, kind);
        const auto v = random_floats(random, n * width, Kind::plain);
        for (float& x : k) x = std::fmin(std::fmax(x, -60000.0f), 60000.0f);
        if (trial % 4 == 3) k[static_cast<size_t>(random.below(n * width))] = bad[random.below(5)];
        std::vector<uint8_t> fault(static_cast<size_t>(n));
        const KvWriteArgs write{k.data(), v.data(), n, 0, &pages.view, {fault.data()}};
        reference().kv_write(write, {0, write.items()});
        const auto kt = put(k), vt = put(v);
        const auto written = no_faults(n);
        const auto start = put(std::vector<PassPlace>{{0}});
        kernels().kv_write({kt.get(), vt.get(), n, start.get(), pages.device_view, written.get()},
                           device_->stream());
        ASSERT_EQ(written.values(), fault);
        ASSERT_TRUE(pages.same()) << kv_type_name(k_type) << " " << kv_type_name(v_type);
        wrote.count(n * width * 2);

        auto q = random_floats(random, rows * row_width, Kind::plain);
        if (trial % 6 == 5) q[0] = 3e38f;
        const float cap = random.below(3) == 0 ? 5.0f : 0.0f;
        const int64_t window = random.below(2) ? random.between(1, n) : 0;
        const int processors = any_processors(random);
        std::vector<float> want(q.size());
        std::vector<uint8_t> score_fault(static_cast<size_t>(rows));
        std::vector<std::byte> memory = scratch_of(head_dim, n_head, n_head_kv);
        const AttentionArgs args{
            q.data(),    want.data(),         rows, before, n_head, head_dim, 0.2f, cap, window,
            &pages.view, {score_fault.data()}};
        reference().attention(args, {0, args.items()}, aligned(memory));
        const auto place = put(std::vector<PassPlace>{{before}});
        const auto run = [&](const std::vector<float>& query, Way way,
                             std::vector<uint8_t>* found) {
          const auto qt = put(query);
          const auto faults = no_faults(rows);
          AttentionUnitsArgs units;
          units.q = qt.get();
          units.rows = rows;
          units.n_head = n_head;
          units.head_dim = head_dim;
          units.scale = 0.2f;
          units.softcap = cap;
          units.window = window;
          units.place = place.get();
          units.kv = pages.device_view;
          units.faults = faults.get();
          units.processors = processors;
          auto out = attention_there(device_, units, way, n, random.below(2));
          if (found) *found = faults.values();
          return out;
        };
        for (const Way way : kWays) {
          if (!way_fits(way, n)) continue;
          std::vector<uint8_t> found;
          const auto got = run(q, way, &found);
          ASSERT_EQ(found, score_fault);
          ASSERT_TRUE(same_bits(got, want))
              << "way " << static_cast<int>(way) << " " << kv_type_name(k_type) << " "
              << kv_type_name(v_type) << " rows " << rows << " before " << before << " head_dim "
              << head_dim << " window " << window;
          tally.count(rows * row_width);
        }
        for (float& x : q) x = std::nextafter(x, 100.0f);
        other.trial(!same_bits(run(q, Way::joined, nullptr), want));
      }
    }
    EXPECT_TRUE(other.seen(0.2));
  }
}

// Norms, rotation and the cache's own rows inside attention, against the ops one by one.
TEST_F(Cuda, AttentionThatTurnsHeads) {
  Random random(55);
  Tally tally("cuda attention that turns heads");
  Control other("cuda attention of another raw value");
  for (const KvType k_type : kKvTypes) {
    for (const KvType v_type : kKvTypes) {
      for (int64_t trial = 0; trial < trials(24, 2); ++trial) {
        // Heads for which blocks of a smaller device have no room for values beside keys, too.
        const bool small = few_trials() && trial == 1 && k_type == v_type;
        limit_shared(small ? 99 << 10 : 0);
        const int64_t n_head_kv = small ? 1 : random.between(1, 3), group = random.between(1, 4);
        const bool blocks = kv_block_elements(k_type) > 1 || kv_block_elements(v_type) > 1;
        const int64_t any[] = {8, 16, 20, 34, 64, 80, 128, 256}, whole[] = {32, 64, 96, 128};
        const int64_t head_dim = small    ? 256
                                 : blocks ? whole[random.below(4)]
                                          : any[random.below(few_trials() ? 5 : 8)];
        ASSERT_TRUE(turns_heads(1, head_dim));
        const int64_t n_head = n_head_kv * group, rows = random.between(1, few_trials() ? 3 : 8);
        // Around the borders of pages, from the start of a sequence, and anywhere.
        const int64_t before = trial % 3 == 0   ? 64 * random.between(1, 2) - random.below(rows + 1)
                               : trial % 3 == 1 ? random.below(2)
                                                : random.below(few_trials() ? 140 : 1300);
        const int64_t n = before + rows, kv_width = n_head_kv * head_dim, width = n_head * head_dim;
        const int64_t n_rot = 2 * random.between(0, head_dim / 2), half = n_rot / 2;
        const bool halves = random.below(2) == 1, norms = random.below(2) == 1;
        const float eps = 1e-6f;
        const int64_t window = random.below(3) == 0 ? random.between(1, n) : 0;
        const int processors = any_processors(random);
        auto q = random_floats(random, rows * width, Kind::plain);
        auto k = random_floats(random, n * kv_width, kAllKinds[trial % 6]);
        const auto v = random_floats(random, n * kv_width, Kind::plain);
        for (float& x : k) x = std::fmin(std::fmax(x, -60000.0f), 60000.0f);
        if (trial % 4 == 3) k[static_cast<size_t>(random.below(n * kv_width))] = NAN;
        if (trial % 8 == 5) q[static_cast<size_t>(random.below(rows * width))] = INFINITY;
        const auto cos = random_floats(random, std::max<int64_t>(1, rows * half), Kind::plain);
        const auto sin = random_floats(random, std::max<int64_t>(1, rows * half), Kind::plain);
        const auto q_norm = random_floats(random, head_dim, Kind::plain);
        const auto k_norm = random_floats(random, head_dim, Kind::plain);

        // What came before, in both memories; then this pass, op by op.
        PagesOfBoth pages(device_, n_head_kv, head_dim, k_type, v_type, n);
        if (before > 0) {
          std::vector<uint8_t> ignored(static_cast<size_t>(before));
          const KvWriteArgs write{k.data(), v.data(), before, 0, &pages.view, {ignored.data()}};
          reference().kv_write(write, {0, write.items()});
          const auto kt = put(k), vt = put(v);
          const auto faults = no_faults(before);
          const auto start = put(std::vector<PassPlace>{{0}});
          kernels().kv_write(
              {kt.get(), vt.get(), before, start.get(), pages.device_view, faults.get()},
              device_->stream());
          ASSERT_TRUE(pages.same());
        }
        const auto own = [&](const std::vector<float>& all) {
          return std::vector<float>(all.begin() + before * kv_width, all.end());
        };
        const std::vector<float> raw_k = own(k), own_v = own(v);
        std::vector<float> turned_q = q, turned_k = raw_k, want(q.size());
        const auto zeros = [&] { return std::vector<uint8_t>(static_cast<size_t>(rows)); };
        auto q_fault = zeros(), k_fault = zeros(), write_fault = zeros(), score_fault = zeros();
        const auto turn = [&](std::vector<float>& x, int64_t heads, const std::vector<float>& norm,
                              std::vector<uint8_t>& fault) {
          if (norms) {
            const RmsNormArgs args{x.data(),         norm.data(), x.data(), rows,
                                   heads * head_dim, head_dim,    eps,      {fault.data()}};
            reference().rms_norm(args, {0, args.items()});
          }
          const RopeArgs args{x.data(), cos.data(), sin.data(), rows,
                              heads,    head_dim,   n_rot,      halves};
          reference().rope(args, {0, args.items()});
        };
        turn(turned_q, n_head, q_norm, q_fault);
        turn(turned_k, n_head_kv, k_norm, k_fault);
        const KvWriteArgs write{turned_k.data(), own_v.data(), rows,
                                before,          &pages.view,  {write_fault.data()}};
        reference().kv_write(write, {0, write.items()});
        std::vector<std::byte> memory = scratch_of(head_dim, n_head, n_head_kv);
        const AttentionArgs args{turned_q.data(),
                                 want.data(),
                                 rows,
                                 before,
                                 n_head,
                                 head_dim,
                                 0.2f,
                                 0.0f,
                                 window,
                                 &pages.view,
                                 {score_fault.data()}};
        reference().attention(args, {0, args.items()}, aligned(memory));

        const auto place = put(std::vector<PassPlace>{{before}});
        const auto cost = put(cos), sint = put(sin);
        const auto q_norm_there = put(q_norm), k_norm_there = put(k_norm);
        const auto run = [&](const std::vector<float>& raw_v, Way way, bool compare) {
          const auto qt = put(q), kt = put(raw_k), vt = put(raw_v);
          const auto q_faults = no_faults(rows), k_faults = no_faults(rows);
          const auto write_faults = no_faults(rows), score_faults = no_faults(rows);
          AttentionUnitsArgs units;
          units.q = qt.get();
          units.rows = rows;
          units.n_head = n_head;
          units.head_dim = head_dim;
          units.scale = 0.2f;
          units.window = window;
          units.place = place.get();
          units.kv = pages.device_view;
          units.faults = score_faults.get();
          units.processors = processors;
          HeadsArgs& heads = units.heads;
          heads.q = qt.get();
          heads.k = kt.get();
          heads.v = vt.get();
          heads.rows = rows;
          heads.n_head = n_head;
          heads.head_dim = head_dim;
          heads.n_rot = n_rot;
          heads.halves = halves;
          heads.cos = cost.get();
          heads.sin = sint.get();
          if (norms) {
            heads.q_norm = q_norm_there.get();
            heads.k_norm = k_norm_there.get();
          }
          heads.q_eps = heads.k_eps = eps;
          heads.place = place.get();
          heads.kv = pages.device_view;
          heads.q_faults = q_faults.get();
          heads.k_faults = k_faults.get();
          heads.write_faults = write_faults.get();
          auto out = attention_there(device_, units, way, n, random.below(2));
          if (compare) {
            EXPECT_EQ(q_faults.values(), q_fault);
            EXPECT_EQ(k_faults.values(), k_fault);
            EXPECT_EQ(write_faults.values(), write_fault);
            EXPECT_EQ(score_faults.values(), score_fault);
            EXPECT_TRUE(pages.same());
          }
          return out;
        };
        for (const Way way : {Way::pages, Way::joined}) {
          if (!way_fits(way, n)) continue;
          ASSERT_TRUE(same_bits(run(own_v, way, true), want))
              << kv_type_name(k_type) << " " << kv_type_name(v_type) << " rows " << rows
              << " before " << before << " head_dim " << head_dim << " window " << window
              << " n_rot " << n_rot;
          tally.count(rows * width);
          ASSERT_FALSE(HasFailure());
        }
        auto off = own_v;
        off[static_cast<size_t>((rows - 1) * kv_width)] *= 1.25f;
        other.trial(!same_bits(run(off, Way::joined, false), want));
      }
    }
  }
  limit_shared(0);
  EXPECT_TRUE(other.seen(0.2));
}

}  // namespace
}  // namespace lockstep::kernels::cuda::test
