// What the kernels' sources share. They are compiled twice: by nvcc for devices (kernels.cu), and
// by a plain C++ compiler with a small emulation of blocks, warps and barriers, so that the
// equality tests run them on machines without a GPU (tests/kernels/cuda/emulation.h). Both define,
// before this is included:
//   LOCKSTEP_LAUNCH(kernel, blocks, threads, shared bytes, stream, argument)
//   LOCKSTEP_MOST_SHARED    the bytes that a launch can ask for
//   LOCKSTEP_SHARED(name)   the launch's shared bytes as unsigned char*, 16-byte aligned
//   LOCKSTEP_UNROLL         before a loop over registers
//   LOCKSTEP_UNROLL_BY(n)   the same, n turns at a time
//   LOCKSTEP_APART          before a function that is in another translation unit of the device's
// The emulation defines LOCKSTEP_EMULATED.
//
// One rounding per operator: nvcc contracts nothing (--fmad=false), fma is written where the law
// has it, division and square root are IEEE's.
#pragma once

#include <cfloat>

#include "kernels/cuda/kernels.h"
#include "kernels/math/elementary.h"
#include "kernels/math/half.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr unsigned kAllLanes = 0xFFFFFFFFu;

struct alignas(8) Words2 {
  uint32_t word[2];
};
struct alignas(16) Words4 {
  uint32_t word[4];
};

__device__ inline bool is_non_finite(float x) {
  return (math::bits_of(x) & 0x7F800000u) == 0x7F800000u;
}

// Any thread may set a row's flag, so several may at once: they write the same.
__device__ inline void set_fault(uint8_t* faults, int64_t row) {
  faults[row] = 1;
}

__device__ inline float square_root(float x) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

// Exact.
__device__ inline float half_to_float(uint32_t bits) {
#ifdef __CUDA_ARCH__
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(static_cast<uint16_t>(bits)));
  return x;
#else
  return math::f16_to_f32(static_cast<uint16_t>(bits));
#endif
}

__device__ inline int64_t thread_of_grid() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

constexpr int kElementThreads = 256;

inline unsigned blocks_for(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

// Devices from sm_90 start a launch while the one before it runs. Every kernel calls both
// (rotary.cuh the second alone: what it makes may be read by any later launch at once), and
// otherwise touches nothing that an earlier launch writes or reads for writing before the second:
// it waits until that one has ended and what it wrote is seen. Blocks with nothing to do may leave
// without it where others of the launch, at least one, wait.
__device__ inline void let_next_launch_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ inline void wait_for_earlier_launches() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void after_earlier_launches() {
  let_next_launch_start();
  wait_for_earlier_launches();
}

// --- copies to shared memory that go on beside the thread
// -----------------------------------------

// 16 bytes, both addresses aligned.
__device__ inline void copy16_async(void* shared, const void* global) {
#ifdef __CUDA_ARCH__
  const auto to = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
#else
  *static_cast<Words4*>(shared) = *static_cast<const Words4*>(global);
#endif
}
// Ends a group of the thread's copies.
__device__ inline void commit_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until all but the last kNewest groups have arrived.
template <int kNewest>
__device__ inline void wait_copies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
#endif
}

// From sm_90: one lane copies a whole run of bytes, and a barrier in shared memory counts them as
// they arrive. Each turn of the barrier has one arrival, the copying lane's, with the bytes that it
// waits for.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define LOCKSTEP_BULK_COPIES
__device__ inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
__device__ inline void start_barrier(uint64_t* barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}
// After the last barrier's start: the copies see them.
__device__ inline void barriers_started() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
// Addresses and bytes are multiples of 16.
__device__ inline void copy_bulk(void* shared, const void* global, int bytes, uint64_t* barrier) {
  const uint32_t at = shared_address(barrier);
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
               : "memory");
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(at)
      : "memory");
}
// Until the barrier's turn of this parity has ended. What was copied is seen then.
__device__ inline void wait_barrier(uint64_t* barrier, uint32_t parity) {
  const uint32_t at = shared_address(barrier);
  uint32_t done = 0;
  do {
    asm volatile(
        "{ .reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(at), "r"(parity)
        : "memory");
  } while (done == 0);
}
#endif

// --- integer products of a warp ------------------------------------------------------------------

// c += A·B, A 16 × 32 of int8, or of uint8, and B 32 × 8 of int8: every lane has its fragments. a,
// b as in formats.h; c: rows g, g + 8 (c ÷ 2), columns 2t, 2t + 1 (c mod 2).
template <bool kUnsigned>
__device__ inline void mma_k32(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#ifdef __CUDA_ARCH__
  if constexpr (kUnsigned) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
#elif defined(LOCKSTEP_EMULATED)
  emulation::mma(c, a, 4, b0, b1, kUnsigned);
#endif
}
// The same with 16 in place of 32: a0, a1 are the registers of rows g and g + 8.
template <bool kUnsigned>
__device__ inline void mma_k16(int32_t (&c)[4], uint32_t a0, uint32_t a1, uint32_t b) {
#ifdef __CUDA_ARCH__
  if constexpr (kUnsigned) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b));
  } else {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%0,%1,%2,%3};"
        : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
        : "r"(a0), "r"(a1), "r"(b));
  }
#elif defined(LOCKSTEP_EMULATED)
  const uint32_t a[4] = {a0, a1, 0, 0};
  emulation::mma(c, a, 2, b, 0, kUnsigned);
#endif
}

// Byte i of the result is byte (selector ÷ 16^i) mod 8 of x (0 … 3) and y (4 … 7).
__device__ inline uint32_t pick_bytes(uint32_t x, uint32_t y, uint32_t selector) {
#ifdef __CUDA_ARCH__
  return __byte_perm(x, y, selector);
#else
  const uint64_t both = uint64_t{y} << 32 | x;
  uint32_t out = 0;
  for (int i = 0; i < 4; ++i) {
    out |= static_cast<uint32_t>(both >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
  }
  return out;
#endif
}

// tree(16) over 16 neighbouring threads; all have the sum's bits, since addition commutes.
__device__ inline float tree16(float lane) {
  for (int h = 8; h >= 1; h /= 2) lane = lane + __shfl_xor_sync(kAllLanes, lane, h);
  return lane;
}

}  // namespace
}  // namespace lockstep::kernels::cuda
