// Integer intrinsics, bit casts and conversions.
#pragma once
#include <limits>

#include "words.h"

#define HLOOPT_BITS(NAME, TO, FROM)         \
  static inline TO NAME(FROM value) {       \
    TO result;                              \
    static_assert(sizeof(TO) == sizeof(FROM), #NAME); \
    memcpy(&result, &value, sizeof result); \
    return result;                          \
  }
HLOOPT_BITS(__float_as_int, int, float)
HLOOPT_BITS(__float_as_uint, unsigned, float)
HLOOPT_BITS(__int_as_float, float, int)
HLOOPT_BITS(__uint_as_float, float, unsigned)
HLOOPT_BITS(__double_as_longlong, long long, double)
HLOOPT_BITS(__longlong_as_double, double, long long)
static inline int __double2hiint(double value) { return (int)(__double_as_longlong(value) >> 32); }
static inline int __double2loint(double value) { return (int)__double_as_longlong(value); }
static inline double __hiloint2double(int high, int low) {
  return __longlong_as_double((long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low));
}

static inline int __clz(int value) { return value ? __builtin_clz(value) : 32; }
static inline int __clzll(long long value) { return value ? __builtin_clzll(value) : 64; }
static inline int __ffs(int value) { return __builtin_ffs(value); }
static inline int __ffsll(long long value) { return __builtin_ffsll(value); }
static inline int __popc(unsigned value) { return __builtin_popcount(value); }
static inline int __popcll(unsigned long long value) { return __builtin_popcountll(value); }
static inline unsigned __brev(unsigned v) {
  v = (v >> 1 & 0x55555555u) | (v & 0x55555555u) << 1;
  v = (v >> 2 & 0x33333333u) | (v & 0x33333333u) << 2;
  v = (v >> 4 & 0x0f0f0f0fu) | (v & 0x0f0f0f0fu) << 4;
  return __builtin_bswap32(v);
}
static inline unsigned long long __brevll(unsigned long long v) {
  return (unsigned long long)__brev((unsigned)v) << 32 | __brev((unsigned)(v >> 32));
}
static inline int __mulhi(int a, int b) { return (int)((long long)a * b >> 32); }
static inline unsigned __umulhi(unsigned a, unsigned b) {
  return (unsigned)((unsigned long long)a * b >> 32);
}
static inline long long __mul64hi(long long a, long long b) {
  return (long long)((__int128)a * b >> 64);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
static inline int __mul24(int a, int b) {
  return (int)((unsigned)(a << 8 >> 8) * (unsigned)(b << 8 >> 8));
}
static inline unsigned __umul24(unsigned a, unsigned b) { return (a & 0xffffff) * (b & 0xffffff); }
static inline int __hadd(int a, int b) { return (int)(((long long)a + b) >> 1); }
static inline int __rhadd(int a, int b) { return (int)(((long long)a + b + 1) >> 1); }
static inline unsigned __sad(int a, int b, unsigned c) {
  const long long d = (long long)a - b;
  return c + (unsigned)(d < 0 ? -d : d);
}
// Each nibble of `selector` picks a byte of y:x; its high bit repeats that byte's sign.
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const unsigned long long bytes = (unsigned long long)y << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) {
    const unsigned pick = selector >> (4 * i) & 15;
    unsigned byte = (unsigned)(bytes >> (8 * (pick & 7))) & 255;
    if (pick & 8) byte = byte & 128 ? 255 : 0;
    result |= byte << (8 * i);
  }
  return result;
}
static inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) {
  return (unsigned)((((unsigned long long)high << 32 | low) << (by & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return (unsigned)(((unsigned long long)high << 32 | low) >> (by & 31));
}
static inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned by) {
  return by >= 32 ? low : __funnelshift_l(low, high, by);
}
static inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned by) {
  return by >= 32 ? high : __funnelshift_r(low, high, by);
}
static inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; i++) c += (signed char)(a >> (8 * i)) * (signed char)(b >> (8 * i));
  return c;
}
static inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 4; i++) c += (a >> (8 * i) & 255) * (b >> (8 * i) & 255);
  return c;
}

// Conversions of floats to integers saturate as PTX's cvt; NaN becomes 0, or 0x80...0 where a side has 64 bits.
namespace hloopt {
template <class To, class From>
inline To saturate(From rounded) {
  using Limits = std::numeric_limits<To>;
  constexpr bool is_wide = sizeof(To) == 8 || sizeof(From) == 8;
  if (rounded != rounded) return is_wide ? (To)(1ull << (8 * sizeof(To) - 1)) : To(0);
  if (rounded <= (From)Limits::min()) return Limits::min();
  if (rounded >= (From)Limits::max()) return Limits::max();
  return (To)rounded;
}
}  // namespace hloopt
#define HLOOPT_TO_INTEGER(NAME, TO, FROM)                                                            \
  static inline TO NAME##_rn(FROM v) { return hloopt::saturate<TO>((FROM)__builtin_rint(v)); }             \
  static inline TO NAME##_rz(FROM v) { return hloopt::saturate<TO>((FROM)__builtin_trunc(v)); }            \
  static inline TO NAME##_rd(FROM v) { return hloopt::saturate<TO>((FROM)__builtin_floor(v)); }            \
  static inline TO NAME##_ru(FROM v) { return hloopt::saturate<TO>((FROM)__builtin_ceil(v)); }
HLOOPT_TO_INTEGER(__float2int, int, float)
HLOOPT_TO_INTEGER(__float2uint, unsigned, float)
HLOOPT_TO_INTEGER(__float2ll, long long, float)
HLOOPT_TO_INTEGER(__float2ull, unsigned long long, float)
HLOOPT_TO_INTEGER(__double2int, int, double)
HLOOPT_TO_INTEGER(__double2uint, unsigned, double)
HLOOPT_TO_INTEGER(__double2ll, long long, double)
HLOOPT_TO_INTEGER(__double2ull, unsigned long long, double)
static inline float __int2float_rn(int v) { return (float)v; }
static inline float __uint2float_rn(unsigned v) { return (float)v; }
static inline float __ll2float_rn(long long v) { return (float)v; }
static inline float __ull2float_rn(unsigned long long v) { return (float)v; }
static inline double __int2double_rn(int v) { return v; }
static inline double __uint2double_rn(unsigned v) { return v; }
static inline double __ll2double_rn(long long v) { return (double)v; }
static inline double __ull2double_rn(unsigned long long v) { return (double)v; }
static inline float __double2float_rn(double v) { return (float)v; }

// Arithmetic of mixed types is done in the wider one, as CUDA's overloads do.
#define HLOOPT_MIN_MAX(A, B, C)                                             \
  static inline C min(A a, B b) { return (C)b < (C)a ? (C)b : (C)a; }       \
  static inline C max(A a, B b) { return (C)a < (C)b ? (C)b : (C)a; }
HLOOPT_MIN_MAX(int, int, int)
HLOOPT_MIN_MAX(unsigned, unsigned, unsigned)
HLOOPT_MIN_MAX(int, unsigned, unsigned)
HLOOPT_MIN_MAX(unsigned, int, unsigned)
HLOOPT_MIN_MAX(long, long, long)
HLOOPT_MIN_MAX(unsigned long, unsigned long, unsigned long)
HLOOPT_MIN_MAX(long, unsigned long, unsigned long)
HLOOPT_MIN_MAX(unsigned long, long, unsigned long)
HLOOPT_MIN_MAX(long long, long long, long long)
HLOOPT_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
HLOOPT_MIN_MAX(long long, unsigned long long, unsigned long long)
HLOOPT_MIN_MAX(unsigned long long, long long, unsigned long long)
static inline unsigned umin(unsigned a, unsigned b) { return b < a ? b : a; }
static inline unsigned umax(unsigned a, unsigned b) { return a < b ? b : a; }
