// Functions of float and double which CUDA has and the C library has not, or not as CUDA has them.
#pragma once
#include <math.h>

#include "words.h"

#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif

#ifdef __APPLE__
#define exp10f __exp10f
#define exp10 __exp10
#define sincosf __sincosf
#define sincos __sincos
#endif

namespace hloopt {

// maxNum and minNum as PTX's max and min: a NaN loses, and -0 < +0.  The library's are calls; these are not.
template <class T, class Bits>
inline T maximum(T a, T b) {
  Bits x, y;
  memcpy(&x, &a, sizeof x);
  memcpy(&y, &b, sizeof y);
  const Bits both = x & y;
  T equal;
  memcpy(&equal, &both, sizeof both);
  const T larger = (a > b) | (b != b) ? a : b;
  return a == b ? equal : larger;
}
template <class T, class Bits>
inline T minimum(T a, T b) {
  Bits x, y;
  memcpy(&x, &a, sizeof x);
  memcpy(&y, &b, sizeof y);
  const Bits either = x | y;
  T equal;
  memcpy(&equal, &either, sizeof either);
  const T smaller = (a < b) | (b != b) ? a : b;
  return a == b ? equal : smaller;
}

// M. Giles, Approximating the erfinv function (GPU Computing Gems, 2010), made exact by Newton's steps.
inline double erf_inverse(double y) {
  const double a = ::fabs(y);
  if (!(a < 1)) return a == 1 ? y * INFINITY : NAN;
  const double central[] = {2.81022636e-08, 3.43273939e-07, -3.5233877e-06,
                            -4.39150654e-06, 0.00021858087, -0.00125372503,
                            -0.00417768164, 0.246640727, 1.50140941};
  const double tail[] = {-0.000200214257, 0.000100950558, 0.00134934322,
                         -0.00367342844, 0.00573950773, -0.0076224613,
                         0.00943887047, 1.00167406, 2.83297682};
  double w = -::log1p(-a * a);
  const double* const table = w < 5 ? central : tail;
  w = w < 5 ? w - 2.5 : ::sqrt(w) - 3;
  double x = table[0];
  for (int i = 1; i < 9; i++) x = table[i] + x * w;
  x *= a;
  for (int i = 0; i < 3; i++) {
    const double error = a < 0.5 ? a - ::erf(x) : ::erfc(x) - (1 - a);
    x += error * 0.88622692545275801 * ::exp(x * x);
  }
  return ::copysign(x, y);
}

}  // namespace hloopt

static inline float max(float a, float b) { return hloopt::maximum<float, unsigned>(a, b); }
static inline float min(float a, float b) { return hloopt::minimum<float, unsigned>(a, b); }
static inline double max(double a, double b) {
  return hloopt::maximum<double, unsigned long long>(a, b);
}
static inline double min(double a, double b) {
  return hloopt::minimum<double, unsigned long long>(a, b);
}
#define fmaxf(a, b) hloopt::maximum<float, unsigned>(a, b)
#define fminf(a, b) hloopt::minimum<float, unsigned>(a, b)
#define fmax(a, b) ::max(a, b)
#define fmin(a, b) ::min(a, b)
static inline double max(float a, double b) { return max((double)a, b); }
static inline double max(double a, float b) { return max(a, (double)b); }
static inline double min(float a, double b) { return min((double)a, b); }
static inline double min(double a, float b) { return min(a, (double)b); }

static inline float rsqrtf(float x) { return (float)(1 / ::sqrt((double)x)); }
static inline double rsqrt(double x) { return 1 / ::sqrt(x); }
static inline float rcbrtf(float x) { return (float)(1 / ::cbrt((double)x)); }
static inline double rcbrt(double x) { return 1 / ::cbrt(x); }
static inline float fdividef(float a, float b) { return a / b; }
static inline double normcdf(double x) { return 0.5 * ::erfc(-x * 0.70710678118654752); }
static inline float normcdff(float x) { return (float)normcdf(x); }
static inline double erfinv(double x) { return hloopt::erf_inverse(x); }
static inline float erfinvf(float x) { return (float)hloopt::erf_inverse(x); }
static inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }

// Multiples of pi: reduced exactly before they are multiplied.
static inline double sinpi(double x) {
  const double r = ::remainder(x, 2.0), m = ::fabs(r);
  const double s = m <= 0.25 ? ::sin(M_PI * m)
                 : m <= 0.75 ? ::cos(M_PI * (0.5 - m))
                             : ::sin(M_PI * (1 - m));
  return ::copysign(s, r);
}
static inline double cospi(double x) {
  const double m = ::fabs(::remainder(x, 2.0));
  return m == 0.5 ? 0 : m <= 0.25 ? ::cos(M_PI * m) : m <= 0.75 ? ::sin(M_PI * (0.5 - m)) : -::cos(M_PI * (1 - m));
}
static inline float sinpif(float x) { return (float)sinpi(x); }
static inline float cospif(float x) { return (float)cospi(x); }
static inline void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
static inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }

// The fast approximations: the exact function, from which theirs differ by a few units in the last place.
// The C library has some of these names for itself.
#define HLOOPT_FAST(NAME, EXACT) \
  static inline float hloopt_fast_##NAME(float x) { return EXACT(x); }
HLOOPT_FAST(expf, ::expf)
HLOOPT_FAST(exp10f, ::exp10f)
HLOOPT_FAST(logf, ::logf)
HLOOPT_FAST(log2f, ::log2f)
HLOOPT_FAST(log10f, ::log10f)
HLOOPT_FAST(sinf, ::sinf)
HLOOPT_FAST(cosf, ::cosf)
HLOOPT_FAST(tanf, ::tanf)
#define __expf hloopt_fast_expf
#ifndef __APPLE__
#define __exp10f hloopt_fast_exp10f
#define __sincosf sincosf
#endif
#define __logf hloopt_fast_logf
#define __log2f hloopt_fast_log2f
#define __log10f hloopt_fast_log10f
#define __sinf hloopt_fast_sinf
#define __cosf hloopt_fast_cosf
#define __tanf hloopt_fast_tanf
static inline float hloopt_fast_powf(float x, float y) { return ::powf(x, y); }
#define __powf hloopt_fast_powf
static inline float __fdividef(float a, float b) { return a / b; }

// Arithmetic with its rounding named; never contracted.
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return ::sqrtf(a); }
static inline float __frcp_rn(float a) { return 1 / a; }
static inline float __frsqrt_rn(float a) { return rsqrtf(a); }
static inline float __fmaf_rn(float a, float b, float c) { return ::fmaf(a, b, c); }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dsub_rn(double a, double b) { return a - b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline double __dsqrt_rn(double a) { return ::sqrt(a); }
static inline double __drcp_rn(double a) { return 1 / a; }
static inline double __fma_rn(double a, double b, double c) { return ::fma(a, b, c); }
