// Words of CUDA C and its vector types, for compiling generated code with a host compiler.
#pragma once
#include <math.h>  // the standard headers come first: the words below would break them
#include <stdlib.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <type_traits>
#include <utility>
#include <stdint.h>
#include <string.h>

#define __device__
#define __host__
#define __forceinline__ __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define __constant__ static const
#ifndef __restrict__
#define __restrict__ __restrict
#endif

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

#define HLOOPT_VECTORS(T, N)                                              \
  struct alignas(2 * sizeof(T)) N##2 { T x, y; };                         \
  struct N##3 { T x, y, z; };                                             \
  struct alignas(sizeof(T) < 4 ? 4 * sizeof(T) : 16) N##4 { T x, y, z, w; }; \
  static inline N##2 make_##N##2(T x, T y) { return {x, y}; }             \
  static inline N##3 make_##N##3(T x, T y, T z) { return {x, y, z}; }     \
  static inline N##4 make_##N##4(T x, T y, T z, T w) { return {x, y, z, w}; }
HLOOPT_VECTORS(float, float)
HLOOPT_VECTORS(double, double)
HLOOPT_VECTORS(signed char, char)
HLOOPT_VECTORS(unsigned char, uchar)
HLOOPT_VECTORS(short, short)
HLOOPT_VECTORS(unsigned short, ushort)
HLOOPT_VECTORS(int, int)
HLOOPT_VECTORS(unsigned, uint)
HLOOPT_VECTORS(long long, longlong)
HLOOPT_VECTORS(unsigned long long, ulonglong)
