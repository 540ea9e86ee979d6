// What threads do together.
#pragma once
#include "words.h"  // standard headers come first: its words would break them
#include "worker.h"

#define HLOOPT_EMULATOR 1
#define __global__ __attribute__((always_inline))

namespace hloopt {

// The base of every program: one object for each CUDA thread, so that these end up in registers.
struct Thread {
  Index threadIdx, blockIdx, blockDim, gridDim;
  static constexpr int warpSize = kWarpSize;
};

inline int lane() { return worker->current % kWarpSize; }
inline Warp& warp() { return worker->warps[worker->current / kWarpSize]; }

template <class T>
inline T shuffle(uint32_t mask, const T& value, int source, int site) {
  static_assert(sizeof(T) <= 16 && __is_trivially_copyable(T), "a shuffle moves up to 16 bytes");
  Warp& own = warp();
  const int me = lane();
  memcpy(own.value[me], &value, sizeof(T));
  wait_for_warp(WarpOp::kShuffle, mask, source, site);
  T result;
  memcpy(&result, own.result[me], sizeof(T));
  return result;
}

template <class T, class Result = T>
inline Result together(WarpOp op, uint32_t mask, T value, int site) {
  Warp& own = warp();
  const int me = lane();
  memcpy(own.value[me], &value, sizeof(T));
  wait_for_warp(op, mask, me, site);
  Result result;
  memcpy(&result, own.result[me], sizeof(Result));
  return result;
}

// Arrive with a task and go on when it is done.
inline void work_as_warp(WarpTask& task, int site) {
  WarpTask* const mine = &task;
  memcpy(warp().value[lane()], &mine, sizeof mine);
  wait_for_warp(WarpOp::kTask, ~0u, lane(), site);
}

}  // namespace hloopt

#define __syncthreads() ((void)hloopt::wait_for_block(__LINE__, false, nullptr))
#define HLOOPT_SITE int site = __builtin_LINE()

static inline int __syncthreads_count(int vote, HLOOPT_SITE) {
  return hloopt::wait_for_block(site, vote != 0, nullptr);
}
static inline int __syncthreads_or(int vote, HLOOPT_SITE) {
  return hloopt::wait_for_block(site, vote != 0, nullptr) != 0;
}
static inline int __syncthreads_and(int vote, HLOOPT_SITE) {
  int count;
  const int votes = hloopt::wait_for_block(site, vote != 0, &count);
  return votes == count;
}
static inline void __syncwarp(unsigned mask = 0xffffffffu, HLOOPT_SITE) {
  hloopt::wait_for_warp(hloopt::WarpOp::kSync, mask, 0, site);
}

// A lane outside its segment of `width` lanes keeps its own value.
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int from, int width = 32, HLOOPT_SITE) {
  const int me = hloopt::lane();
  return hloopt::shuffle(mask, value, (me & ~(width - 1)) | (from & (width - 1)), site);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, HLOOPT_SITE) {
  const int me = hloopt::lane(), source = me ^ bits;
  const bool is_outside = (source & ~(width - 1)) > (me & ~(width - 1)) || source > 31;
  return hloopt::shuffle(mask, value, is_outside ? me : source, site);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, HLOOPT_SITE) {
  const int me = hloopt::lane();
  const bool is_outside = (me & (width - 1)) + (long long)by >= width;
  return hloopt::shuffle(mask, value, is_outside ? me : me + (int)by, site);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, HLOOPT_SITE) {
  const int me = hloopt::lane();
  const bool is_outside = (me & (width - 1)) < (long long)by;
  return hloopt::shuffle(mask, value, is_outside ? me : me - (int)by, site);
}
static inline unsigned __ballot_sync(unsigned mask, int vote, HLOOPT_SITE) {
  return hloopt::together<unsigned>(hloopt::WarpOp::kBallot, mask, vote != 0, site);
}
static inline int __any_sync(unsigned mask, int vote, HLOOPT_SITE) {
  return __ballot_sync(mask, vote, site) != 0;
}
static inline int __all_sync(unsigned mask, int vote, HLOOPT_SITE) {
  return __ballot_sync(mask, !vote, site) == 0;
}
static inline unsigned __activemask() { return hloopt::warp().live; }
template <class T>
static inline unsigned __match_any_sync(unsigned mask, T value, HLOOPT_SITE) {
  unsigned long long bits = 0;
  memcpy(&bits, &value, sizeof(T));
  return hloopt::together<unsigned long long, unsigned>(hloopt::WarpOp::kMatch, mask, bits, site);
}

#define HLOOPT_REDUCE(NAME, T, OP)                                          \
  static inline T NAME(unsigned mask, T value, HLOOPT_SITE) {               \
    return hloopt::together<T>(hloopt::WarpOp::OP, mask, value, site);      \
  }
HLOOPT_REDUCE(__reduce_add_sync, unsigned, kAdd)
HLOOPT_REDUCE(__reduce_add_sync, int, kAdd)
HLOOPT_REDUCE(__reduce_min_sync, unsigned, kMin)
HLOOPT_REDUCE(__reduce_min_sync, int, kMinSigned)
HLOOPT_REDUCE(__reduce_max_sync, unsigned, kMax)
HLOOPT_REDUCE(__reduce_max_sync, int, kMaxSigned)
HLOOPT_REDUCE(__reduce_and_sync, unsigned, kAnd)
HLOOPT_REDUCE(__reduce_or_sync, unsigned, kOr)
HLOOPT_REDUCE(__reduce_xor_sync, unsigned, kXor)

static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() {}
static inline void __threadfence_system() { __threadfence(); }
[[noreturn]] static inline void __trap(HLOOPT_SITE) { hloopt::fail(site, "executes __trap()"); }
#undef assert
#define assert(condition) \
  ((condition) ? (void)0 : hloopt::fail(__LINE__, "fails the assertion %s", #condition))
