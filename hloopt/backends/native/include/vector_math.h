// The functions of C's math library as this compiler makes vectors of them: without branches or calls, so
// that a loop over one of them becomes a loop over 4 to 16 lanes.
//
// Bound: 2.5 units in the last place of the exact result (most are below 1), held by
// tests/backends/native/test_math.py.  Zeros keep their signs, NaN stays NaN, subnormals are not flushed.
//
// Methods: arguments reduced as by W. J. Cody and W. Waite, Software Manual for the Elementary Functions
// (1980), large ones of sines as by M. Payne and R. Hanek, Radian Reduction for Trigonometric Functions (1983);
// polynomials through Chebyshev's points, or the best there are, computed with mpmath.
#pragma once
#include "vector_math_f32.h"
#include "vector_math_f64.h"

// What generated code calls.  The library's own names are used up by now.
#define expf(x) hloopt::quick::exp32(x)
#define expm1f(x) hloopt::quick::expm132(x)
#define logf(x) hloopt::quick::log32(x)
#define log1pf(x) hloopt::quick::log1p32(x)
#define tanhf(x) hloopt::quick::tanh32(x)
#define erff(x) hloopt::quick::erf32(x)
#define sinf(x) hloopt::quick::sin32(x)
#define cosf(x) hloopt::quick::cos32(x)
#define tanf(x) hloopt::quick::tan32(x)
#define asinf(x) hloopt::quick::asin32(x)
#define acosf(x) hloopt::quick::acos32(x)
#define atan2f(y, x) hloopt::quick::atan232(y, x)
#define sinhf(x) hloopt::quick::sinh32(x)
#define coshf(x) hloopt::quick::cosh32(x)
#define asinhf(x) hloopt::quick::asinh32(x)
#define acoshf(x) hloopt::quick::acosh32(x)
#define atanhf(x) hloopt::quick::atanh32(x)
#define cbrtf(x) hloopt::quick::cbrt32(x)
#define powf(x, y) hloopt::quick::pow32(x, y)
#define rsqrtf(x) hloopt::quick::rsqrt32(x)
#define roundf(x) hloopt::quick::round32(x)
#define exp(x) hloopt::quick::exp64(x)
#define expm1(x) hloopt::quick::expm164(x)
#define log(x) hloopt::quick::log64(x)
#define log1p(x) hloopt::quick::log1p64(x)
#define tanh(x) hloopt::quick::tanh64(x)
#define round(x) hloopt::quick::round64(x)
