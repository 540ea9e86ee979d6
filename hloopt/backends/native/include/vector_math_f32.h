// f32: the frequent functions in f32, the others in f64 with no more terms than f32 needs.
#pragma once
#include <math.h>

#include "integers.h"

namespace hloopt {
namespace quick {

#define HLOOPT_QUICK static inline __attribute__((always_inline))

// a * b + c: one rounding where the processor can, two elsewhere; the bounds hold either way.
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
HLOOPT_QUICK float fma32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
HLOOPT_QUICK double fma64(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
HLOOPT_QUICK float fma32(float a, float b, float c) { return a * b + c; }
HLOOPT_QUICK double fma64(double a, double b, double c) { return a * b + c; }
#endif

HLOOPT_QUICK float bits32(unsigned bits) { return __uint_as_float(bits); }
HLOOPT_QUICK unsigned of32(float x) { return __float_as_uint(x); }
HLOOPT_QUICK double bits64(unsigned long long bits) { return __longlong_as_double((long long)bits); }
HLOOPT_QUICK unsigned long long of64(double x) { return (unsigned long long)__double_as_longlong(x); }
HLOOPT_QUICK float signed32(float size, float sign) {
  return bits32((of32(size) & 0x7fffffffu) | (of32(sign) & 0x80000000u));
}
HLOOPT_QUICK float size32(float x) { return bits32(of32(x) & 0x7fffffffu); }
HLOOPT_QUICK double size64(double x) { return bits64(of64(x) & 0x7fffffffffffffffull); }
// Between two numbers; NaN stays.
HLOOPT_QUICK float within32(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}
HLOOPT_QUICK double within64(double x, double low, double high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

// x + kWhole32 has x, rounded to a whole number, in its last bits.
constexpr float kWhole32 = 0x1.8p23f;
constexpr double kWhole64 = 0x1.8p52;

// ---- in f32

// (e^r - 1 - r) / r^2 for |r| <= log(2) / 2.
HLOOPT_QUICK float exp_rest32(float r) {
  float p = fma32(0x1.a12a420p-13f, r, 0x1.6d49200p-10f);
  p = fma32(p, r, 0x1.1110e00p-7f);
  p = fma32(p, r, 0x1.5554e40p-5f);
  p = fma32(p, r, 0x1.5555560p-3f);
  return fma32(p, r, 0.5f);
}

// x = n log(2) + r, with kWhole32 + n returned; |n| < 256.
HLOOPT_QUICK float split_exp32(float x, float* r) {
  const float whole = fma32(x, 0x1.715476p+0f, kWhole32);
  const float n = whole - kWhole32;
  // 15 bits of log(2): their product with n is exact.
  *r = fma32(n, -0x1.7f7d1cp-20f, fma32(n, -0x1.62e4p-1f, x));
  return whole;
}

HLOOPT_QUICK float exp32(float x) {
  float r;
  const int n = (int)(of32(split_exp32(within32(x, -105.0f, 89.0f), &r)) - 0x4b400000u);
  const float power = fma32(exp_rest32(r), r * r, r) + 1.0f;
  // 2^n in two factors, since it may be subnormal or too large.
  const int half = n >> 1;
  return power * bits32(((unsigned)half + 127u) << 23) *
         bits32(((unsigned)n - (unsigned)half + 127u) << 23);
}

HLOOPT_QUICK float expm132(float x) {
  float r;
  const int n = (int)(of32(split_exp32(within32(x, -18.0f, 89.0f), &r)) - 0x4b400000u);
  const float rest = fma32(exp_rest32(r), r * r, r);
  // 2^n (rest + 1) - 1, with half of 2^n where that alone would be too large.
  const float half = bits32(((unsigned)n + 126u) << 23);
  const float result = 2.0f * (fma32(half, rest, half) - 0.5f);
  const float near = 2.0f * fma32(half, rest, half - 0.5f);
  const float found = n > 1 ? result : near;
  return x == 0.0f ? x : found;
}

// log(1 + f) as 2s + s^3 (...) with s = f / (2 + f); f, k and the rest c as of log and log1p.
HLOOPT_QUICK float log_parts32(float f, float k, float c) {
  const float s = f / (2.0f + f), z = s * s;
  float p = fma32(z, 0x1.de47380p-3f, 0x1.245a080p-2f);
  p = fma32(p, z, 0x1.9999f00p-2f);
  p = fma32(p, z, 0x1.5555560p-1f);
  const float half = 0.5f * f * f;
  const float low = fma32(k, 0x1.7f7d1cp-20f, c);
  return fma32(k, 0x1.62e4p-1f, f - (half - fma32(s, fma32(z, p, half), low)));
}

constexpr unsigned kRootHalf32 = 0x3f3504f3u;

HLOOPT_QUICK float log32(float x) {
  const bool is_small = x < 0x1p-126f;
  const float large = is_small ? x * 0x1p+23f : x;
  const int k = (int)(of32(large) - kRootHalf32) >> 23;
  const float f = bits32(of32(large) - ((unsigned)k << 23)) - 1.0f;
  float found = log_parts32(f, (float)(is_small ? k - 23 : k), 0.0f);
  found = x > 0.0f ? found : x == 0.0f ? -INFINITY : bits32(0x7fc00000u);
  return x < INFINITY ? found : x + x;  // infinity, NaN
}

HLOOPT_QUICK float log1p32(float x) {
  const float u = 1.0f + x;
  const int k = (int)(of32(u) - kRootHalf32) >> 23;
  const float m = bits32(of32(u) - ((unsigned)k << 23)) - 1.0f;
  // What 1 + x has lost; nothing where x itself is taken.
  const float lost = (k > 0 ? 1.0f - (u - x) : x - (u - 1.0f)) / u;
  float found = log_parts32(k == 0 ? x : m, (float)k, k == 0 ? 0.0f : lost);
  found = x > -1.0f ? found : x == -1.0f ? -INFINITY : bits32(0x7fc00000u);
  found = x < INFINITY ? found : x + x;
  return x == 0.0f ? x : found;
}

// -(e - 1) / (e + 1) with e = exp(-2|x|): nothing cancels.
HLOOPT_QUICK float tanh32(float x) {
  const float less = expm132(-2.0f * size32(x));
  const float found = -less / (2.0f + less);
  return x != x ? x : signed32(found, x);
}

HLOOPT_QUICK float erf32(float x) {
  const float a = size32(x), z = x * x;
  float p = fma32(z, 0x1.496a36p-14f, -0x1.a3f6fep-11f);
  p = fma32(p, z, 0x1.5405b0p-8f);
  p = fma32(p, z, -0x1.b7f90cp-6f);
  p = fma32(p, z, 0x1.ce2cf8p-4f);
  p = fma32(p, z, -0x1.81273ep-2f);
  p = fma32(p, z, 0x1.06eba8p-3f);
  const float near = fma32(x, p, x);
  // log2(erfc(a)) for a from 1 to 4: no larger one counts.
  const float t = a > 4.0f ? 4.0f : a;
  float q = fma32(t, -0x1.7b19b2p-16f, 0x1.0e317cp-11f);
  q = fma32(q, t, -0x1.5f2f22p-8f);
  q = fma32(q, t, 0x1.17b040p-5f);
  q = fma32(q, t, -0x1.37fa70p-3f);
  q = fma32(q, t, -0x1.d5f6e2p-1f);
  q = fma32(q, t, -0x1.a08bc2p+0f);
  q = fma32(q, t, -0x1.577f68p-12f);
  // 2^q = 2^n 2^r to 2^-23 of itself: erfc(a) is less than 1/6.
  const float whole = q + kWhole32, r = q - (whole - kWhole32);
  float e = fma32(r, 0x1.5f762ep-10f, 0x1.3ced92p-7f);
  e = fma32(e, r, 0x1.c6ae68p-5f);
  e = fma32(e, r, 0x1.ebf9b2p-3f);
  e = fma32(e, r, 0x1.62e432p-1f);
  const float rest = bits32(of32(fma32(e, r, 1.0f)) + (of32(whole) << 23));
  return a >= 1.0f ? signed32(1.0f - rest, x) : near;
}

HLOOPT_QUICK float rsqrt32(float x) { return 1.0f / __builtin_sqrtf(x); }

// Halves away from 0.
HLOOPT_QUICK float round32(float x) {
  const float whole = __builtin_truncf(x);
  const float found = size32(x - whole) >= 0.5f ? whole + signed32(1.0f, x) : whole;
  return x - x == 0.0f ? signed32(found, x) : x;
}

// ---- in f64, for results in f32

// e^x to 1e-11; x limited to where f32 has numbers, and beyond.
HLOOPT_QUICK double exp_wide(double x) {
  x = within64(x, -300.0, 300.0);
  const double whole = fma64(x, 0x1.71547652b82fep+0, kWhole64);
  const double n = whole - kWhole64;
  const double r = fma64(n, -0x1.abc9e3b39803fp-56, fma64(n, -0x1.62e42fefa39efp-1, x));
  double p = fma64(r, 0x1.a118166a38fc2p-16, 0x1.a157ae7c78603p-13);
  p = fma64(p, r, 0x1.6c168322fc79ep-10);
  p = fma64(p, r, 0x1.1110c32facbd0p-7);
  p = fma64(p, r, 0x1.5555555cf7462p-5);
  p = fma64(p, r, 0x1.555555686bc5ap-3);
  p = fma64(p, r, 0.5);
  p = fma64(p * r, r, r) + 1.0;
  return bits64(of64(p) + (of64(whole) << 52));
}

// log(x) to 1e-11 of itself, of positive normal numbers.
HLOOPT_QUICK double log_wide(double x) {
  const long long k = (long long)(of64(x) - 0x3fe6a09e667f3bcdull) >> 52;
  const double f = bits64(of64(x) - ((unsigned long long)k << 52)) - 1.0;
  const double s = f / (2.0 + f), z = s * s;
  double p = fma64(z, 0x1.de4737f09328bp-3, 0x1.245a07980f548p-2);
  p = fma64(p, z, 0x1.9999f074fb559p-2);
  p = fma64(p, z, 0x1.5555554ae4a69p-1);
  const double exponent = bits64((unsigned long long)k + 0x4338000000000000ull) - kWhole64;
  return fma64(exponent, 0x1.62e42fefa39efp-1, fma64(s * z, p, 2.0 * s));
}

// log(1 + w) for w >= 0, infinity included.
HLOOPT_QUICK double log1p_wide(double w) {
  const double u = 1.0 + w;
  const double found = log_wide(u) + (w - (u - 1.0)) / u;
  return w < INFINITY ? found : w;
}

HLOOPT_QUICK float asinh32(float x) {
  const double a = size32(x);
  const float found = (float)log1p_wide(a + a * a / (1.0 + __builtin_sqrt(1.0 + a * a)));
  return a < INFINITY ? signed32(found, x) : x;
}

HLOOPT_QUICK float acosh32(float x) {
  const double t = (double)x - 1.0;
  const float found = (float)log1p_wide(t + __builtin_sqrt(t * (t + 2.0)));
  return x >= 1.0f ? found : bits32(0x7fc00000u);
}

HLOOPT_QUICK float atanh32(float x) {
  const double a = size32(x);
  const float found = (float)(0.5 * log1p_wide(2.0 * a / (1.0 - a)));
  return a <= 1.0 ? signed32(found, x) : bits32(0x7fc00000u);
}

HLOOPT_QUICK float cosh32(float x) {
  const double e = exp_wide((double)size32(x));
  return (float)(0.5 * (e + 1.0 / e));
}

HLOOPT_QUICK float sinh32(float x) {
  const double a = x, z = a * a, e = exp_wide(size64(a));
  double p = fma64(z, 1.0 / 39916800, 1.0 / 362880);
  p = fma64(p, z, 1.0 / 5040);
  p = fma64(p, z, 1.0 / 120);
  p = fma64(p, z, 1.0 / 6);
  const double far = 0.5 * (e - 1.0 / e);
  return size64(a) < 1.0 ? (float)fma64(p * z, a, a) : signed32((float)far, x);
}

HLOOPT_QUICK float cbrt32(float x) {
  const double a = size32(x);
  const float found = signed32((float)exp_wide(log_wide(a) * (1.0 / 3.0)), x);
  return a > 0.0 && a < INFINITY ? found : x;
}

HLOOPT_QUICK float pow32(float x, float y) {
  const float a = size32(x);
  const float whole = __builtin_truncf(y), half = __builtin_truncf(0.5f * y);
  // An infinite or large y is even; the sign of x counts for an odd one.
  const float odd = whole == y ? size32(y - 2.0f * half) : 0.0f;
  const float negative = odd == 1.0f ? x : 0.0f;
  // A fraction of a negative number there is none.
  const float no_power = whole == y ? 0.0f : bits32(0x7fc00000u);
  const float sign = x < 0.0f ? no_power : 0.0f;
  const float fault = a < INFINITY ? sign : 0.0f;
  double size = log_wide((double)a);
  size = (double)(a == 0.0f ? -INFINITY : a < INFINITY ? 0.0f : a) + size;
  float found = (float)exp_wide((double)y * size);
  found = signed32(found + fault, negative);
  found = a == 1.0f ? (size32(y) == INFINITY ? 1.0f : found) : found;
  return x == 1.0f ? 1.0f : y == 0.0f ? 1.0f : found;
}

// asin(a) for 0 <= a <= 1/2, given a and a^2.
HLOOPT_QUICK double asin_near(double a, double z) {
  double p = fma64(z, 0x1.13fed3dd245c1p-5, 0x1.18f91e79712c6p-6);
  p = fma64(p, z, 0x1.fd8da2554dd34p-6);
  p = fma64(p, z, 0x1.6d5bb95f8e653p-5);
  p = fma64(p, z, 0x1.333430fcff28ep-4);
  p = fma64(p, z, 0x1.555554e435732p-3);
  return fma64(p * z, a, a);
}

// asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)).
HLOOPT_QUICK double asin_wide(double x) {
  const double a = size64(x);
  const bool is_near = a <= 0.5;
  const double z = is_near ? a * a : 0.5 * (1.0 - a);
  const double root = asin_near(is_near ? a : __builtin_sqrt(z), z);
  const double found = is_near ? root : 0x1.921fb54442d18p+0 - 2.0 * root;
  return x < 0.0 ? -found : found;
}

HLOOPT_QUICK float asin32(float x) {
  const float found = signed32((float)asin_wide((double)x), x);
  return size32(x) <= 1.0f ? found : bits32(0x7fc00000u);
}

HLOOPT_QUICK float acos32(float x) {
  const double a = size32(x);
  const double root = 2.0 * asin_near(__builtin_sqrt(0.5 * (1.0 - a)), 0.5 * (1.0 - a));
  const double middle = 0x1.921fb54442d18p+0 - asin_wide((double)x);
  const double far = x < 0.0f ? 0x1.921fb54442d18p+1 - root : root;
  return a <= 0.5 ? (float)middle : a <= 1.0 ? (float)far : bits32(0x7fc00000u);
}

HLOOPT_QUICK float atan232(float y, float x) {
  const double a = size32(x), b = size32(y);
  const bool is_steep = b > a;
  const double least = is_steep ? a : b, most = is_steep ? b : a;
  double t = least / most;
  t = most == 0.0 ? 0.0 : least == INFINITY ? 1.0 : t;
  const double z = t * t;
  double p = fma64(z, -0x1.eae3fce3e9b57p-11, 0x1.96cc733874da8p-8);
  p = fma64(p, z, -0x1.3b92d4977ae50p-6);
  p = fma64(p, z, 0x1.39fa7ae12ac35p-5);
  p = fma64(p, z, -0x1.d7eaf8f924fc4p-5);
  p = fma64(p, z, 0x1.2fd217ccc6a7ap-4);
  p = fma64(p, z, -0x1.72251c83739b9p-4);
  p = fma64(p, z, 0x1.c6d94a4e392f4p-4);
  p = fma64(p, z, -0x1.249035356f79fp-3);
  p = fma64(p, z, 0x1.99998c8c70e06p-3);
  p = fma64(p, z, -0x1.5555554e74b35p-2);
  double angle = fma64(p * z, t, t);
  angle = is_steep ? 0x1.921fb54442d18p+0 - angle : angle;
  angle = (int)of32(x) < 0 ? 0x1.921fb54442d18p+1 - angle : angle;
  const float found = signed32((float)angle, y);
  return x != x || y != y ? x + y : found;
}

// a where it holds, b elsewhere, without control flow: what two calls compute alike is then computed once.
HLOOPT_QUICK float either32(bool holds, float a, float b) {
  return bits32(of32(b) ^ (-(unsigned)holds & (of32(a) ^ of32(b))));
}
HLOOPT_QUICK unsigned long long change64(bool holds, double a, double b) {
  return -(unsigned long long)holds & (of64(a) ^ of64(b));
}

// x in quarter turns: what is left of them, in radians, from -pi/4 to pi/4, and how many, modulo 4.
struct Turn {
  float left;
  unsigned quarters;
};
struct WideTurn {
  double left;
  unsigned quarters;
};

// x * a - p of p = x * a as it is rounded, exactly, where x has the bits of an f32.
HLOOPT_QUICK double lost64(double x, double a, double p) {
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  return __builtin_fma(x, a, -p);
#else
  const double high = bits64(of64(a) & ~0xffffffull);
  return (x * high - p) + x * (a - high);
#endif
}

// Of x from 2^20: 2 / pi times x in two parts, modulo 4.  27 exponents share the bits of 2 / pi that count: those
// before are multiples of 4 in the product.
HLOOPT_QUICK WideTurn far_turn32(float size) {
  const double x = size;
  const bool first = x < 0x1p47, second = x < 0x1p74, third = x < 0x1p101;
  const double high = bits64(
      of64(0x1.d5f47d4d37703p-78) ^ change64(third, 0x1.529fc2757d1f5p-52, 0x1.d5f47d4d37703p-78) ^
      change64(second, 0x1.b727220a94fe1p-23, 0x1.529fc2757d1f5p-52) ^
      change64(first, 0x1.45f306dc9c883p-1, 0x1.b727220a94fe1p-23));
  const double low = bits64(
      of64(0x1.b6295993c4390p-132) ^ change64(third, 0x1.a6ee06db14acdp-107, 0x1.b6295993c4390p-132) ^
      change64(second, 0x1.d5f47d4d37703p-78, 0x1.a6ee06db14acdp-107) ^
      change64(first, -0x1.6b01ec5417056p-55, 0x1.d5f47d4d37703p-78));
  double turns = x * high;
  const double rest = fma64(x, low, lost64(x, high, turns));
  // Multiples of 4 do not count; 2^54 rounds to them.
  turns -= (turns + 0x1.8p54) - 0x1.8p54;
  const double whole = (turns + rest) + kWhole64;
  const double left = (turns - (whole - kWhole64)) + rest;
  // Infinity and NaN leave NaN.
  return WideTurn{left * 0x1.921fb54442d18p+0 + (x - x), (unsigned)of64(whole)};
}

constexpr float kFarTurn32 = 0x1p20f;

// kWhole32 + n, the quarter turns of x below 2^20.
HLOOPT_QUICK float near_turns32(float size) { return fma32(size, 0x1.45f306p-1f, kWhole32); }

// 33 bits of pi / 2: their product with n is exact.
HLOOPT_QUICK double near_left64(float size, float n) {
  return ((double)size - (double)n * 0x1.921fb544p+0) - (double)n * 0x1.0b4611a626331p-34;
}

HLOOPT_QUICK Turn turn32(float x) {
  const float size = size32(x), whole = near_turns32(size), n = whole - kWhole32;
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
  const float near = fma32(n, 0x1.ee59dap-50f, fma32(n, 0x1.777a5cp-25f, fma32(n, -0x1.921fb6p+0f, size)));
#else
  const float near = (float)near_left64(size, n);
#endif
  const WideTurn far = far_turn32(size);
  const bool is_near = size < kFarTurn32;
  return Turn{
      either32(is_near, near, (float)far.left),
      of32(either32(is_near, whole, bits32(far.quarters)))};
}

HLOOPT_QUICK float turned_sine32(float r) {
  const float z = r * r;
  float p = fma32(z, -0x1.9902a4p-13f, 0x1.1106aep-7f);
  p = fma32(p, z, -0x1.555546p-3f);
  return fma32(p * z, r, r);
}

HLOOPT_QUICK float turned_cosine32(float r) {
  const float z = r * r;
  float p = fma32(z, 0x1.9a6bccp-16f, -0x1.6c0e6ep-10f);
  p = fma32(p, z, 0x1.55554ep-5f);
  p = fma32(p, z, -0.5f);
  return fma32(p, z, 1.0f);
}

HLOOPT_QUICK float sin32(float x) {
  const Turn turn = turn32(x);
  const float sine = turned_sine32(turn.left), cosine = turned_cosine32(turn.left);
  const float found = either32(turn.quarters & 1u, cosine, sine);
  return bits32(of32(found) ^ (turn.quarters & 2u) << 30 ^ (of32(x) & 0x80000000u));
}

HLOOPT_QUICK float cos32(float x) {
  const Turn turn = turn32(x);
  const float sine = turned_sine32(turn.left), cosine = turned_cosine32(turn.left);
  const float found = either32(turn.quarters & 1u, sine, cosine);
  return bits32(of32(found) ^ ((turn.quarters + 1u) & 2u) << 30);
}

HLOOPT_QUICK float tan32(float x) {
  const float size = size32(x), whole = near_turns32(size);
  const WideTurn far = far_turn32(size);
  const bool is_near = size < kFarTurn32;
  const double r = is_near ? near_left64(size, whole - kWhole32) : far.left, z = r * r;
  double s = fma64(z, 0x1.6da8eb8e30cdfp-19, -0x1.a01365cb7d412p-13);
  s = fma64(s, z, 0x1.11110dbdfb290p-7);
  s = fma64(s, z, -0x1.5555555449984p-3);
  double c = fma64(z, -0x1.2516355dc2b23p-22, 0x1.a01598916be10p-16);
  c = fma64(c, z, -0x1.6c16bf340de7ep-10);
  c = fma64(c, z, 0x1.55555554fbfbfp-5);
  c = fma64(c, z, -0.5);
  const double sine = fma64(s * z, r, r), cosine = fma64(c, z, 1.0);
  const bool is_odd = (is_near ? of32(whole) : far.quarters) & 1u;
  const float found = (float)((is_odd ? -cosine : sine) / (is_odd ? sine : cosine));
  return bits32(of32(found) ^ (of32(x) & 0x80000000u));
}

}  // namespace quick
}  // namespace hloopt
