// Arithmetic of f16 and bf16 that newer devices have instructions for; in f32 elsewhere, which rounds
// to the same numbers: 24 bits are twice as many as 11 and two more (Figueroa, 1995).

//@ add_f16: f16 widen_f16 round_f16
// The sum, rounded once.
__device__ f16 add_f16(f16 x, f16 y) {
#if defined(__CUDACC__)
  f16 found;
  asm("add.rn.f16 %0, %1, %2;" : "=h"(found.bits) : "h"(x.bits), "h"(y.bits));
  return found;
#else
  return round_f16(widen_f16(x) + widen_f16(y));
#endif
}

//@ subtract_f16: f16 widen_f16 round_f16
// The difference, rounded once.
__device__ f16 subtract_f16(f16 x, f16 y) {
#if defined(__CUDACC__)
  f16 found;
  asm("sub.rn.f16 %0, %1, %2;" : "=h"(found.bits) : "h"(x.bits), "h"(y.bits));
  return found;
#else
  return round_f16(widen_f16(x) - widen_f16(y));
#endif
}

//@ multiply_f16: f16 widen_f16 round_f16
// The product, rounded once.
__device__ f16 multiply_f16(f16 x, f16 y) {
#if defined(__CUDACC__)
  f16 found;
  asm("mul.rn.f16 %0, %1, %2;" : "=h"(found.bits) : "h"(x.bits), "h"(y.bits));
  return found;
#else
  return round_f16(widen_f16(x) * widen_f16(y));
#endif
}

//@ maximum_f16: f16 widen_f16 round_f16 maximum_f32
// The larger; NaN if either is, and +0 is larger than -0.
__device__ f16 maximum_f16(f16 x, f16 y) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  f16 found;
  asm("max.NaN.f16 %0, %1, %2;" : "=h"(found.bits) : "h"(x.bits), "h"(y.bits));
  return found;
#else
  return round_f16(maximum_f32(widen_f16(x), widen_f16(y)));
#endif
}

//@ minimum_f16: f16 widen_f16 round_f16 minimum_f32
// The smaller; NaN if either is, and -0 is smaller than +0.
__device__ f16 minimum_f16(f16 x, f16 y) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  f16 found;
  asm("min.NaN.f16 %0, %1, %2;" : "=h"(found.bits) : "h"(x.bits), "h"(y.bits));
  return found;
#else
  return round_f16(minimum_f32(widen_f16(x), widen_f16(y)));
#endif
}

//@ add_bf16: bf16 widen_bf16 round_bf16
// The sum, rounded once.
__device__ bf16 add_bf16(bf16 x, bf16 y) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  bf16 found;
  asm("add.rn.bf16 %0, %1, %2;" : "=h"(found.bits) : "h"(x.bits), "h"(y.bits));
  return found;
#else
  return round_bf16(widen_bf16(x) + widen_bf16(y));
#endif
}

//@ subtract_bf16: bf16 widen_bf16 round_bf16
// The difference, rounded once.
__device__ bf16 subtract_bf16(bf16 x, bf16 y) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  bf16 found;
  asm("sub.rn.bf16 %0, %1, %2;" : "=h"(found.bits) : "h"(x.bits), "h"(y.bits));
  return found;
#else
  return round_bf16(widen_bf16(x) - widen_bf16(y));
#endif
}

//@ maximum_bf16: bf16 widen_bf16 round_bf16 maximum_f32
// The larger; NaN if either is, and +0 is larger than -0.
__device__ bf16 maximum_bf16(bf16 x, bf16 y) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  bf16 found;
  asm("max.NaN.bf16 %0, %1, %2;" : "=h"(found.bits) : "h"(x.bits), "h"(y.bits));
  return found;
#else
  return round_bf16(maximum_f32(widen_bf16(x), widen_bf16(y)));
#endif
}

//@ minimum_bf16: bf16 widen_bf16 round_bf16 minimum_f32
// The smaller; NaN if either is, and -0 is smaller than +0.
__device__ bf16 minimum_bf16(bf16 x, bf16 y) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  bf16 found;
  asm("min.NaN.bf16 %0, %1, %2;" : "=h"(found.bits) : "h"(x.bits), "h"(y.bits));
  return found;
#else
  return round_bf16(minimum_f32(widen_bf16(x), widen_bf16(y)));
#endif
}

//@ add_to_f16 loops: f16 same_bits swap_if add_f16
// Add to a number in memory as one step.
template <class P>
__device__ void add_to_f16(P p, f16 value) {
#if defined(__CUDACC__)
  asm volatile("red.add.noftz.f16 [%0], %1;" : : "l"(p), "h"(value.bits) : "memory");
#else
  f16 seen = swap_if(p, value, value), old;
  do {
    old = seen;
    seen = swap_if(p, old, add_f16(old, value));
  } while (!same_bits(seen, old));
#endif
}

//@ add_to_bf16 loops: bf16 same_bits swap_if add_bf16
// Add to a number in memory as one step.
template <class P>
__device__ void add_to_bf16(P p, bf16 value) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 900
  asm volatile("red.add.noftz.bf16 [%0], %1;" : : "l"(p), "h"(value.bits) : "memory");
#else
  bf16 seen = swap_if(p, value, value), old;
  do {
    old = seen;
    seen = swap_if(p, old, add_bf16(old, value));
  } while (!same_bits(seen, old));
#endif
}
