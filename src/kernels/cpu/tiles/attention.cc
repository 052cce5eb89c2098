// Attention with sixteen lanes side by side, in the law's order: the lanes of a score, the elements
// of an output. Up to four query rows or heads share a read of the keys and values. Compiled once
// per instruction set; the instructions are in LOCKSTEP_SIMD_HEADER.
#include "kernels/ops/attention.h"

#include LOCKSTEP_SIMD_HEADER
#include "kernels/reference/attention_parts.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

using Float = Simd::Float;

constexpr int kQueries = 4;
constexpr int64_t kPage = kPagePositions;

// Halves sixteen at a time; the other types are converted as in the reference.
void read_row_fast(KvType type, const std::byte* in, int64_t head_dim, float* out) {
  if (type != KvType::f16) return read_row(type, in, head_dim, out);
  int64_t i = 0;
  for (; i + 16 <= head_dim; i += 16) Simd::store(out + i, Simd::load_f16(in + 2 * i));
  for (; i < head_dim; ++i) out[i] = math::f16_to_f32(load<uint16_t>(in + 2 * i));
}

// score[query][key] for keys [begin, end) of a page: the law's sixteen lanes and their tree, for
// four keys of each query at a time (neighbours outside the range come along, whatever they hold).
// Rows are padded with zeros to whole lanes: what these add can change the sign of a zero score at
// most, which has no effect.
template <int N>
void dot_keys(const float* q, const float* k, int64_t stride, int64_t begin, int64_t end,
              float score[][kPage]) {
  for (int64_t j = begin / 4 * 4; j < end; j += 4) {
    Float acc[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) acc[i] = Simd::zero();
    for (int64_t d = 0; d < stride; d += 16) {
      Float query[N];
#pragma GCC unroll 4
      for (int n = 0; n < N; ++n) query[n] = Simd::load_floats(q + n * stride + d);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const Float key = Simd::load_floats(k + (j + i) * stride + d);
#pragma GCC unroll 4
        for (int n = 0; n < N; ++n) acc[4 * i + n] = Simd::fma(query[n], key, acc[4 * i + n]);
      }
    }
    alignas(64) float sums[16];  // [query][key]
    Simd::store(sums, Simd::trees16(acc));
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) __builtin_memcpy(&score[n][j], sums + 4 * n, 16);
  }
}

// Scores to exp(s - m), in place; returns m. Outside [begin, end) there is junk, before and after.
float weigh(const AttentionArgs& args, int64_t begin, int64_t end, float* s, bool& fault) {
  for (int64_t j = 0; j < kPage; ++j) s[j] = s[j] * args.scale;
  if (any_non_finite(s + begin, end - begin)) {
    fault = true;
    for (int64_t j = begin; j < end; ++j) s[j] = is_non_finite(s[j]) ? 0.0f : s[j];
  }
  if (args.softcap != 0.0f) {
    for (int64_t j = 0; j < kPage; ++j) s[j] = args.softcap * math::tanh(s[j] / args.softcap);
  }
  for (int64_t j = 0; j < begin; ++j) s[j] = s[begin];
  for (int64_t j = end; j < kPage; ++j) s[j] = s[begin];
  const Float most = Simd::max(Simd::max(Simd::load_floats(s), Simd::load_floats(s + 16)),
                               Simd::max(Simd::load_floats(s + 32), Simd::load_floats(s + 48)));
  const float m = Simd::max(most);
  for (int64_t j = 0; j < kPage; ++j) s[j] = math::exp_nonpos(s[j] - m);
  return m;
}

// o += p·v for the keys of a page, elements [16·first, 16·(first + D)) of N queries.
template <int N, int D>
void add_values(const float p[][kPage], const float* v, int64_t stride, int64_t begin, int64_t end,
                int64_t first, float* const* o) {
  Float sum[N][D];
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int i = 0; i < D; ++i) sum[n][i] = Simd::zero();
  }
  for (int64_t j = begin; j < end; ++j) {
    Float value[D];
#pragma GCC unroll 4
    for (int i = 0; i < D; ++i) value[i] = Simd::load_floats(v + j * stride + 16 * (first + i));
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const Float weight = Simd::broadcast(&p[n][j]);
#pragma GCC unroll 4
      for (int i = 0; i < D; ++i) sum[n][i] = Simd::fma(weight, value[i], sum[n][i]);
    }
  }
#pragma GCC unroll 4
  for (int n = 0; n < N; ++n) {
#pragma GCC unroll 4
    for (int i = 0; i < D; ++i) Simd::store(o[n] + 16 * (first + i), sum[n][i]);
  }
}

// Keys [begin, end) of one page for N queries, q and o in rows of `stride`.
template <int N>
void attend_page(const AttentionArgs& args, const float* q, const float* k, const float* v,
                 int64_t stride, int64_t begin, int64_t end, Partial* page, bool* fault) {
  alignas(64) float p[N][kPage] = {};
  dot_keys<N>(q, k, stride, begin, end, p);
  float* o[N];
  for (int n = 0; n < N; ++n) {
    page[n].m = weigh(args, begin, end, p[n], fault[n]);
    page[n].started = true;
    o[n] = page[n].o;
  }
  float l[N] = {};
  for (int64_t j = begin; j < end; ++j) {
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) l[n] = l[n] + p[n][j];
  }
  for (int n = 0; n < N; ++n) page[n].l = l[n];
  const int64_t chunks = stride / 16;
  int64_t c = 0;
  for (; c + 4 <= chunks; c += 4) add_values<N, 4>(p, v, stride, begin, end, c, o);
  for (; c < chunks; ++c) add_values<N, 1>(p, v, stride, begin, end, c, o);
}

// All query heads of one kv head. A page's keys and values are converted once for all of them.
void attend(const AttentionArgs& args, const Work& work, std::byte* scratch) {
  const KvLayerView& kv = *args.kv;
  const auto [first, rows, kv_head, positions, partials] = work;
  const int64_t group = args.n_head / kv.n_head_kv, queries = rows * group;
  const int64_t stride = padded(args.head_dim);
  const int64_t k_bytes = kv_row_bytes(kv.k_type, args.head_dim);
  const int64_t v_bytes = kv_row_bytes(kv.v_type, args.head_dim);

  float* k = reinterpret_cast<float*>(scratch);
  float* v = k + kPage * stride;
  float* q = v + kPage * stride;
  float* outputs = q + queries * stride;
  float* page_o = outputs + 2 * queries * stride;
  auto* states = reinterpret_cast<QueryState*>(page_o + kQueries * stride);
  for (int64_t i = 0; i < queries; ++i) {
    states[i] = {{0.0f, 0.0f, outputs + 2 * i * stride, false},
                 {0.0f, 0.0f, outputs + (2 * i + 1) * stride, false},
                 -1};
    const float* from =
        args.q + ((first + i / group) * args.n_head + kv_head * group + i % group) * args.head_dim;
    for (int64_t d = 0; d < args.head_dim; ++d) q[i * stride + d] = from[d];
    for (int64_t d = args.head_dim; d < stride; ++d) q[i * stride + d] = 0.0f;
  }
  Partial page[kQueries];
  for (int n = 0; n < kQueries; ++n) page[n] = {0.0f, 0.0f, page_o + n * stride, false};

  for (int64_t index = positions.begin / kPage; index * kPage < positions.end; ++index) {
    const int64_t page_start = index * kPage;
    const int64_t read_begin = larger<int64_t>(0, positions.begin - page_start);
    const int64_t read_end = smaller(kPage, positions.end - page_start);
    const std::byte* k_page = kv.k_pages[index] + kv_head * kPage * k_bytes;
    const std::byte* v_page = kv.v_pages[index] + kv_head * kPage * v_bytes;
    for (int64_t j = read_begin; j < read_end; ++j) {
      read_row_fast(kv.k_type, k_page + j * k_bytes, args.head_dim, k + j * stride);
      read_row_fast(kv.v_type, v_page + j * v_bytes, args.head_dim, v + j * stride);
      for (int64_t d = args.head_dim; d < stride; ++d) k[j * stride + d] = v[j * stride + d] = 0.0f;
    }
    const auto visible = [&](int64_t query) {
      const int64_t position = args.first_position + first + query / group;
      return Range{larger<int64_t>(0, first_visible(args, position) - page_start),
                   smaller(kPage, position + 1 - page_start)};
    };
    for (int64_t i = 0; i < queries;) {
      const Range keys = visible(i);
      int n = 1;  // neighbours that see the same keys
      while (n < kQueries && i + n < queries && visible(i + n).begin == keys.begin &&
             visible(i + n).end == keys.end) {
        ++n;
      }
      if (!keys.empty()) {
        bool fault[kQueries] = {};
        const float* own = q + i * stride;
        switch (n) {
          case 1:
            attend_page<1>(args, own, k, v, stride, keys.begin, keys.end, page, fault);
            break;
          case 2:
            attend_page<2>(args, own, k, v, stride, keys.begin, keys.end, page, fault);
            break;
          case 3:
            attend_page<3>(args, own, k, v, stride, keys.begin, keys.end, page, fault);
            break;
          default:
            attend_page<4>(args, own, k, v, stride, keys.begin, keys.end, page, fault);
        }
        for (int64_t a = 0; a < n; ++a) {
          QueryState& state = states[i + a];
          enter_page(state, index, args.head_dim);
          merge(state.span, page[a], args.head_dim);
          if (fault[a]) set_fault(args.faults, first + (i + a) / group);
        }
      }
      i += n;
    }
  }

  for (int64_t i = 0; i < queries; ++i) {
    finish(args, work, i / group, i % group, states[i]);
  }
}

}  // namespace

void attention(const AttentionArgs& args, Range items, std::byte* scratch) {
  for (int64_t item = items.begin; item < items.end; ++item) {
    const Work work = work_of(args, item);
    attend(args, work, scratch);
    merge_if_last(args, work, item);
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
