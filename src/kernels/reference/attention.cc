#include "kernels/ops/attention.h"

#include "kernels/reference/attention_parts.h"
#include "kernels/reference/lanes16.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

inline float dot(const float* q, const float* k, int64_t n) {
  float lane[16] = {};
  const int64_t whole = n / 16 * 16;
  fma16(q, k, whole, lane);
  for (int64_t i = whole; i < n; ++i) lane[i % 16] = math::fma_rn(q[i], k[i], lane[i % 16]);
  return tree16(lane);
}

// Positions [begin, end) of one page for one query row and head; k and v are the page's rows.
void attend_page(const AttentionArgs& args, const float* q, const float* k, const float* v,
                 int64_t begin, int64_t end, Partial& page, bool& fault) {
  const int64_t stride = padded(args.head_dim);
  float score[kPagePositions] = {};
  for (int64_t j = begin; j < end; ++j) {
    float s = dot(q, k + j * stride, args.head_dim) * args.scale;
    if (is_non_finite(s)) {
      fault = true;
      s = 0.0f;
    }
    if (args.softcap != 0.0f) s = args.softcap * math::tanh(s / args.softcap);
    score[j] = s;
  }
  float m = score[begin];
  for (int64_t j = begin + 1; j < end; ++j) m = larger(m, score[j]);
  float l = 0.0f;
  for (int64_t i = 0; i < args.head_dim; ++i) page.o[i] = 0.0f;
  for (int64_t j = begin; j < end; ++j) {
    const float p = math::exp_nonpos(score[j] - m);
    l = l + p;
    const float* value = v + j * stride;
    for (int64_t i = 0; i < args.head_dim; ++i) page.o[i] = math::fma_rn(p, value[i], page.o[i]);
  }
  page.m = m;
  page.l = l;
  page.started = true;
}

// All query heads of one kv head. A page's keys and values are converted once for all of them.
void attend(const AttentionArgs& args, const Work& work, std::byte* scratch) {
  const KvLayerView& kv = *args.kv;
  const auto [first, rows, kv_head, positions, partials] = work;
  const int64_t group = args.n_head / kv.n_head_kv;
  const int64_t stride = padded(args.head_dim);
  const int64_t k_bytes = kv_row_bytes(kv.k_type, args.head_dim);
  const int64_t v_bytes = kv_row_bytes(kv.v_type, args.head_dim);

  float* k = reinterpret_cast<float*>(scratch);
  float* v = k + kPagePositions * stride;
  Partial page{0.0f, 0.0f, v + kPagePositions * stride, false};
  float* outputs = page.o + stride;
  auto* states = reinterpret_cast<QueryState*>(outputs + 2 * rows * group * stride);
  for (int64_t i = 0; i < rows * group; ++i) {
    states[i] = {{0.0f, 0.0f, outputs + 2 * i * stride, false},
                 {0.0f, 0.0f, outputs + (2 * i + 1) * stride, false},
                 -1};
  }

  for (int64_t p = positions.begin / kPagePositions; p * kPagePositions < positions.end; ++p) {
    const int64_t page_start = p * kPagePositions;
    const int64_t read_begin = larger<int64_t>(0, positions.begin - page_start);
    const int64_t read_end = smaller(kPagePositions, positions.end - page_start);
    const std::byte* k_page = kv.k_pages[p] + kv_head * kPagePositions * k_bytes;
    const std::byte* v_page = kv.v_pages[p] + kv_head * kPagePositions * v_bytes;
    for (int64_t j = read_begin; j < read_end; ++j) {
      read_row(kv.k_type, k_page + j * k_bytes, args.head_dim, k + j * stride);
      read_row(kv.v_type, v_page + j * v_bytes, args.head_dim, v + j * stride);
    }
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t position = args.first_position + first + row;
      const int64_t begin = larger<int64_t>(0, first_visible(args, position) - page_start);
      const int64_t end = smaller(kPagePositions, position + 1 - page_start);
      if (begin >= end) continue;
      bool fault = false;
      for (int64_t g = 0; g < group; ++g) {
        const int64_t head = kv_head * group + g;
        const float* q = args.q + ((first + row) * args.n_head + head) * args.head_dim;
        QueryState& state = states[row * group + g];
        enter_page(state, p, args.head_dim);
        attend_page(args, q, k, v, begin, end, page, fault);
        merge(state.span, page, args.head_dim);
      }
      if (fault) set_fault(args.faults, first + row);
    }
  }

  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t g = 0; g < group; ++g) {
      finish(args, work, row, g, states[row * group + g]);
    }
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
