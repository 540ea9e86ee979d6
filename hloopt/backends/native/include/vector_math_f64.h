// f64: exponentials and logarithms; what is missing here is called in the library, lane by lane.
#pragma once
#include "vector_math_f32.h"

namespace hloopt {
namespace quick {

HLOOPT_QUICK double signed64(double size, double sign) {
  return bits64((of64(size) & 0x7fffffffffffffffull) | (of64(sign) & 0x8000000000000000ull));
}

// (e^r - 1 - r) / r^2 for |r| <= log(2) / 2.
HLOOPT_QUICK double exp_rest64(double r) {
  double p = fma64(r, 0x1.61c2c1ba3877dp-33, 0x1.1f820dbf5e732p-29);
  p = fma64(p, r, 0x1.ae642ad2afd38p-26);
  p = fma64(p, r, 0x1.27e4d2841fc93p-22);
  p = fma64(p, r, 0x1.71de3a5af94e9p-19);
  p = fma64(p, r, 0x1.a01a01aa828e2p-16);
  p = fma64(p, r, 0x1.a01a01a0195e6p-13);
  p = fma64(p, r, 0x1.6c16c16c158f5p-10);
  p = fma64(p, r, 0x1.1111111111111p-7);
  p = fma64(p, r, 0x1.5555555555557p-5);
  p = fma64(p, r, 0x1.5555555555555p-3);
  return fma64(p, r, 0.5);
}

// x = n log(2) + r; kWhole64 + n is returned.
HLOOPT_QUICK double split_exp64(double x, double* r) {
  const double whole = fma64(x, 0x1.71547652b82fep+0, kWhole64);
  const double n = whole - kWhole64;
  // 32 bits of log(2): their product with n is exact.
  *r = fma64(n, -0x1.a39ef35793c76p-33, fma64(n, -0x1.62e42feep-1, x));
  return whole;
}

HLOOPT_QUICK double exp64(double x) {
  double r;
  const double whole = split_exp64(within64(x, -746.0, 710.0), &r);
  const double power = fma64(exp_rest64(r), r * r, r) + 1.0;
  // 2^n in two factors, since it may be subnormal or too large.
  const unsigned long long shifted = (of64(whole) + 2048) & 0xfff;  // n + 2048
  const unsigned long long half = shifted >> 1, rest = shifted - half;
  return power * bits64((half - 1) << 52) * bits64((rest - 1) << 52);
}

HLOOPT_QUICK double expm164(double x) {
  double r;
  const double whole = split_exp64(within64(x, -40.0, 710.0), &r);
  const double rest = fma64(exp_rest64(r), r * r, r);
  const double half = bits64((of64(whole) + 1022) << 52);
  const double far = 2.0 * (fma64(half, rest, half) - 0.5);
  const double near = 2.0 * fma64(half, rest, half - 0.5);
  const double found = whole - kWhole64 > 1.0 ? far : near;
  return x == 0.0 ? x : found;
}

HLOOPT_QUICK double log_parts64(double f, double k, double c) {
  const double s = f / (2.0 + f), z = s * s;
  double p = fma64(z, 0x1.0c97816496c47p-3, 0x1.0fb04d4fa4e54p-3);
  p = fma64(p, z, 0x1.3b1cbf421a439p-3);
  p = fma64(p, z, 0x1.745cf674f6889p-3);
  p = fma64(p, z, 0x1.c71c72078b928p-3);
  p = fma64(p, z, 0x1.249249247343fp-2);
  p = fma64(p, z, 0x1.9999999999a4fp-2);
  p = fma64(p, z, 0x1.5555555555555p-1);
  const double half = 0.5 * f * f;
  const double low = fma64(k, 0x1.a39ef35793c76p-33, c);
  return fma64(k, 0x1.62e42feep-1, f - (half - fma64(s, fma64(z, p, half), low)));
}

constexpr unsigned long long kRootHalf64 = 0x3fe6a09e667f3bcdull;

// A whole number of few bits as f64: not every processor converts vectors of 64 bits.
HLOOPT_QUICK double whole64(long long k) {
  return bits64((unsigned long long)k + 0x4338000000000000ull) - kWhole64;
}

HLOOPT_QUICK double log64(double x) {
  const bool is_small = x < 0x1p-1022;
  const double large = is_small ? x * 0x1p+54 : x;
  const long long k = (long long)(of64(large) - kRootHalf64) >> 52;
  const double f = bits64(of64(large) - ((unsigned long long)k << 52)) - 1.0;
  double found = log_parts64(f, whole64(k) - (is_small ? 54.0 : 0.0), 0.0);
  found = x > 0.0 ? found : x == 0.0 ? -INFINITY : bits64(0x7ff8000000000000ull);
  return x < INFINITY ? found : x + x;
}

HLOOPT_QUICK double log1p64(double x) {
  const double u = 1.0 + x;
  const long long k = (long long)(of64(u) - kRootHalf64) >> 52;
  const double m = bits64(of64(u) - ((unsigned long long)k << 52)) - 1.0;
  const double lost = (k > 0 ? 1.0 - (u - x) : x - (u - 1.0)) / u;
  double found = log_parts64(k == 0 ? x : m, whole64(k), k == 0 ? 0.0 : lost);
  found = x > -1.0 ? found : x == -1.0 ? -INFINITY : bits64(0x7ff8000000000000ull);
  found = x < INFINITY ? found : x + x;
  return x == 0.0 ? x : found;
}

HLOOPT_QUICK double tanh64(double x) {
  const double less = expm164(-2.0 * size64(x));
  const double found = -less / (2.0 + less);
  return x != x ? x : signed64(found, x);
}

// Halves away from 0.
HLOOPT_QUICK double round64(double x) {
  const double whole = __builtin_trunc(x);
  const double found = size64(x - whole) >= 0.5 ? whole + signed64(1.0, x) : whole;
  return x - x == 0.0 ? signed64(found, x) : x;
}

}  // namespace quick
}  // namespace hloopt
