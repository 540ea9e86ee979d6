// Complex arithmetic, exponentials and logarithms in f64.  Infinities, NaN and signed zeros follow
// Annex G of C; c64 is computed in f64 and rounded once.

//@ widen_c64: c64 c128
// c64 as c128.
__device__ c128 widen_c64(c64 x) {
  return c128{(double)x.re, (double)x.im};
}

//@ round_c64: c64 c128
// c128 to c64.
__device__ c64 round_c64(c128 x) {
  return c64{(float)x.re, (float)x.im};
}

//@ infinite_f64
// Infinity.
__device__ double infinite_f64() {
  return __longlong_as_double(0x7ff0000000000000ll);
}

//@ nan_f64
// A NaN.
__device__ double nan_f64() {
  return __longlong_as_double(0x7ff8000000000000ll);
}

//@ is_infinite_f64: infinite_f64
// Whether x is infinite.
__device__ bool is_infinite_f64(double x) {
  return fabs(x) == infinite_f64();
}

//@ scaled_f64
// x times 2^n, where that is neither subnormal nor infinite if x is not; n in [-2200, 2200].
__device__ double scaled_f64(double x, int n) {
  int third = n / 3;
  double a = __longlong_as_double((long long)(1023 + third) << 52);
  double b = __longlong_as_double((long long)(1023 + n - 2 * third) << 52);
  return x * a * a * b;
}

//@ exponent_c128: c128 finite_f64
// The exponent n of the larger size 2^n * [1, 2); 0 for 0 and where one is not finite.
__device__ int exponent_c128(c128 x) {
  double a = fabs(x.re), b = fabs(x.im);
  double size = a > b ? a : b;
  if (!finite_f64(a) || !finite_f64(b) || size == 0) return 0;
  bool subnormal = size < 0x1p-1022;
  if (subnormal) size *= 0x1p+54;
  int field = (int)(__double_as_longlong(size) >> 52);
  return field - 1023 - (subnormal ? 54 : 0);
}

//@ scaled_c128: c128 scaled_f64
// Both parts times 2^n.
__device__ c128 scaled_c128(c128 x, int n) {
  return c128{scaled_f64(x.re, n), scaled_f64(x.im, n)};
}

//@ add_c128: c128
// The sum.
__device__ c128 add_c128(c128 x, c128 y) {
  return c128{x.re + y.re, x.im + y.im};
}

//@ multiply_c128: c128
// (ac - bd) + (ad + bc)i.
__device__ c128 multiply_c128(c128 x, c128 y) {
  return c128{x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re};
}

//@ boxed_f64: is_infinite_f64
// An infinite part as 1, another as 0, with its sign.
__device__ double boxed_f64(double x) {
  return copysign(is_infinite_f64(x) ? 1.0 : 0.0, x);
}

//@ recovered_c128: c128 finite_f64 infinite_f64 nan_f64 is_infinite_f64 boxed_f64
// What Annex G.5.1 makes of a quotient both of whose parts came out as NaN.
__device__ c128 recovered_c128(c128 x, c128 y) {
  bool infinite_x = is_infinite_f64(x.re) || is_infinite_f64(x.im);
  bool infinite_y = is_infinite_f64(y.re) || is_infinite_f64(y.im);
  double a = x.re, b = x.im, c = y.re, d = y.im, scale = 0.0;
  if (c == 0 && d == 0) {
    double large = copysign(infinite_f64(), c);
    return c128{large * a, large * b};
  }
  if (infinite_x && finite_f64(c) && finite_f64(d)) {
    a = boxed_f64(a);
    b = boxed_f64(b);
    scale = infinite_f64();
  } else if (infinite_y && finite_f64(a) && finite_f64(b)) {
    c = boxed_f64(c);
    d = boxed_f64(d);
  } else {
    return c128{nan_f64(), nan_f64()};
  }
  return c128{scale * (a * c + b * d), scale * (b * c - a * d)};
}

//@ divide_c128: c128 scaled_f64 exponent_c128 scaled_c128 recovered_c128
// The quotient by x * conj(y) / |y|^2, scaled so that no square overflows.
__device__ c128 divide_c128(c128 x, c128 y) {
  int above = exponent_c128(x), below = exponent_c128(y);
  c128 z = scaled_c128(x, -above), w = scaled_c128(y, -below);
  double size = w.re * w.re + w.im * w.im;
  double re = scaled_f64((z.re * w.re + z.im * w.im) / size, above - below);
  double im = scaled_f64((z.im * w.re - z.re * w.im) / size, above - below);
  return re == re || im == im ? c128{re, im} : recovered_c128(x, y);
}

//@ divide_c64: c64 c128 widen_c64 round_c64 recovered_c128
// The quotient; in f64 no square of f32 overflows.
__device__ c64 divide_c64(c64 x, c64 y) {
  c128 z = widen_c64(x), w = widen_c64(y);
  double size = w.re * w.re + w.im * w.im;
  double re = (z.re * w.re + z.im * w.im) / size;
  double im = (z.im * w.re - z.re * w.im) / size;
  return round_c64(re == re || im == im ? c128{re, im} : recovered_c128(z, w));
}

//@ multiply_c64: c64 widen_c64 round_c64 multiply_c128
// (ac - bd) + (ad + bc)i; in f64 the products are exact.
__device__ c64 multiply_c64(c64 x, c64 y) {
  return round_c64(multiply_c128(widen_c64(x), widen_c64(y)));
}

//@ sign_c128: c128 exponent_c128 scaled_c128
// Both parts over the size; 0 for 0.
__device__ c128 sign_c128(c128 x) {
  c128 z = scaled_c128(x, -exponent_c128(x));
  double size = hypot(z.re, z.im);
  if (size == 0) return c128{0.0, 0.0};
  return c128{z.re / size, z.im / size};
}

//@ exponential_c128: c128 finite_f64 nan_f64 is_infinite_f64
// e^x.  Where e^a overflows, its product with a small cosine or sine need not.
__device__ c128 exponential_c128(c128 x) {
  double a = x.re, b = x.im;
  if (b == 0) return c128{exp(a), b};
  if (!finite_f64(b)) {
    if (!is_infinite_f64(a)) return c128{nan_f64(), nan_f64()};
    return a > 0 ? c128{a, nan_f64()} : c128{0.0, copysign(0.0, b)};
  }
  if (fabs(a) < 700) {
    double size = exp(a);
    return c128{size * cos(b), size * sin(b)};
  }
  double root = exp(a / 2);
  return c128{root * cos(b) * root, root * sin(b) * root};
}

//@ exponential_c64: c64 finite_f32
// e^x in f32, where that is as good: nothing cancels.
__device__ c64 exponential_c64(c64 x) {
  float a = x.re, b = x.im;
  if (b == 0) return c64{expf(a), b};
  if (!finite_f32(b)) {
    // cos(b) and sin(b) are NaN, which a factor 0 or infinity need not become.
    float size = finite_f32(a) ? b - b : expf(a);
    return c64{size, size == 0 ? copysignf(0.0f, b) : b - b};
  }
  if (fabsf(a) < 80) {
    float size = expf(a);
    return c64{size * cosf(b), size * sinf(b)};
  }
  float root = expf(a * 0.5f);
  return c64{root * cosf(b) * root, root * sinf(b) * root};
}

//@ log_near_one
// log(a^2 + b^2) / 2 for finite parts with b <= a <= 2 and a^2 + b^2 between 1/2 and 3: the square
// less 1 is summed with what its products leave, which are never contracted.
__device__ double log_near_one(double a, double b) {
  double a2 = __dmul_rn(a, a), b2 = __dmul_rn(b, b);
  double rest = fma(a, a, -a2) + fma(b, b, -b2);
  return 0.5 * log1p(a2 - 1 + b2 + rest);
}

//@ log_size_c128: c128 finite_f64 log_near_one
// log|x| without overflow; -inf for 0, inf where a part is infinite.
__device__ double log_size_c128(c128 x) {
  double a = fabs(x.re), b = fabs(x.im);
  if (a < b) {
    double c = a;
    a = b;
    b = c;
  }
  const double ln2 = 0x1.62e42fefa39efp-1;
  if (a > 0x1p+1000 && finite_f64(a)) return log(hypot(a * 0x1p-4, b * 0x1p-4)) + 4 * ln2;
  if (a < 0x1p-900 && a != 0) return log(hypot(a * 0x1p+200, b * 0x1p+200)) - 200 * ln2;
  if (a >= 0.5 && a <= 2 && b <= a) {
    double square = a * a + b * b;
    if (square > 0.5 && square < 3) return log_near_one(a, b);
  }
  return log(hypot(a, b));
}

//@ log_c128: c128 log_size_c128
// The natural logarithm.
__device__ c128 log_c128(c128 x) {
  return c128{log_size_c128(x), atan2(x.im, x.re)};
}

//@ sqrt_c128: c128 infinite_f64 nan_f64 is_infinite_f64 scaled_f64 exponent_c128 scaled_c128
// The square root in the right half plane, scaled so that no square overflows or loses bits.
__device__ c128 sqrt_c128(c128 x) {
  double a = x.re, b = x.im;
  if (is_infinite_f64(b)) return c128{infinite_f64(), b};
  if (a == infinite_f64()) return c128{a, b == b ? copysign(0.0, b) : b};
  if (a == -infinite_f64()) return c128{b == b ? 0.0 : b, copysign(infinite_f64(), b)};
  if (a != a || b != b) return c128{nan_f64(), nan_f64()};
  if (b == 0) return a < 0 ? c128{0.0, copysign(sqrt(-a), b)} : c128{sqrt(fabs(a)), b};
  int half = exponent_c128(x) / 2;
  c128 z = scaled_c128(x, -2 * half);
  double size = hypot(z.re, z.im);
  double root = sqrt((size + fabs(z.re)) * 0.5);
  double other = fabs(z.im) / (2 * root);
  root = scaled_f64(root, half);
  other = scaled_f64(other, half);
  return a < 0 ? c128{other, copysign(root, b)} : c128{root, copysign(other, b)};
}

//@ rsqrt_c128: c128 divide_c128 sqrt_c128
// 1 / sqrt(x).
__device__ c128 rsqrt_c128(c128 x) {
  return divide_c128(c128{1.0, 0.0}, sqrt_c128(x));
}

//@ exponential_minus_one_c128: c128
// e^x - 1; the real part is (exp(a) - 1) cos(b) - 2 sin(b/2)^2.
__device__ c128 exponential_minus_one_c128(c128 x) {
  double a = x.re, b = x.im;
  double half = sin(b * 0.5), root = exp(a * 0.5);
  double small = expm1(a) * cos(b) - 2 * half * half;
  double re = a < 700 ? small : root * cos(b) * root;
  return c128{re, b == 0 ? b : root * sin(b) * root};
}

//@ log_plus_one_c128: c128
// log(1 + x), exact near 0: |1 + x|^2 = 1 + a(2 + a) + b^2.
__device__ c128 log_plus_one_c128(c128 x) {
  double a = x.re, b = x.im;
  double size = hypot(a, b);
  double re = size < 0.5 ? log1p(a * (2 + a) + b * b) * 0.5 : log(hypot(1 + a, b));
  return c128{re, atan2(b, 1 + a)};
}

//@ bits_of_c64: c64
// The bits of a c64: the real part is the low half.
__device__ unsigned long long bits_of_c64(c64 x) {
  return (unsigned long long)__float_as_uint(x.im) << 32 | __float_as_uint(x.re);
}

//@ c64_of_bits: c64
// The c64 of such bits.
__device__ c64 c64_of_bits(unsigned long long bits) {
  return c64{__uint_as_float((unsigned)bits), __uint_as_float((unsigned)(bits >> 32))};
}
