// Functions of real numbers that C rounds, orders or signs otherwise than HLO.

//@ maximum_f32
// The first NaN, else the larger; +0 is larger than -0.
__device__ float maximum_f32(float x, float y) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  float found;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
  return found;
#else
  if (x > y || x != x) return x;
  if (x == y) return __uint_as_float(__float_as_uint(x) & __float_as_uint(y));
  return y;
#endif
}

//@ maximum_f64
// The first NaN, else the larger; +0 is larger than -0.
__device__ double maximum_f64(double x, double y) {
  if (x > y || x != x) return x;
  if (x == y) return __longlong_as_double(__double_as_longlong(x) & __double_as_longlong(y));
  return y;
}

//@ minimum_f32
// The first NaN, else the smaller; -0 is smaller than +0.
__device__ float minimum_f32(float x, float y) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  float found;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
  return found;
#else
  if (x < y || x != x) return x;
  if (x == y) return __uint_as_float(__float_as_uint(x) | __float_as_uint(y));
  return y;
#endif
}

//@ minimum_f64
// The first NaN, else the smaller; -0 is smaller than +0.
__device__ double minimum_f64(double x, double y) {
  if (x < y || x != x) return x;
  if (x == y) return __longlong_as_double(__double_as_longlong(x) | __double_as_longlong(y));
  return y;
}

//@ sign_f32
// -1, 1, or a zero or NaN with the sign of x.
__device__ float sign_f32(float x) {
  return x == 0.0f || x != x ? x : copysignf(1.0f, x);
}

//@ sign_f64
// -1, 1, or a zero or NaN with the sign of x.
__device__ double sign_f64(double x) {
  return x == 0.0 || x != x ? x : copysign(1.0, x);
}

//@ logistic_f32
// 1 / (1 + exp(-x)) without overflow: below 0, exp(x) / (1 + exp(x)).
__device__ float logistic_f32(float x) {
  float power = expf(-fabsf(x));
  return (x < 0.0f ? power : 1.0f) / (1.0f + power);
}

//@ logistic_f64
// 1 / (1 + exp(-x)) without overflow: below 0, exp(x) / (1 + exp(x)).
__device__ double logistic_f64(double x) {
  double power = exp(-fabs(x));
  return (x < 0.0 ? power : 1.0) / (1.0 + power);
}

//@ finite_f32
// Neither infinite nor NaN.
__device__ bool finite_f32(float x) {
  return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u;
}

//@ finite_f64
// Neither infinite nor NaN.
__device__ bool finite_f64(double x) {
  return (__double_as_longlong(x) & 0x7ff0000000000000ll) != 0x7ff0000000000000ll;
}

//@ total_order_8
// A number in the total order of bits: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
__device__ int total_order_8(unsigned bits) {
  return bits & 0x80u ? -1 - (int)(bits & 0x7fu) : (int)bits;
}

//@ total_order_16
// A number in the total order of bits: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
__device__ int total_order_16(unsigned bits) {
  return bits & 0x8000u ? -1 - (int)(bits & 0x7fffu) : (int)bits;
}

//@ total_order_f32
// A number in the total order of bits: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
__device__ int total_order_f32(float x) {
  int bits = (int)__float_as_uint(x);
  return bits < 0 ? bits ^ 0x7fffffff : bits;
}

//@ of_total_order_16
// The bits of the float that has such a number in their total order.
__device__ unsigned of_total_order_16(int order) {
  return order < 0 ? 0x8000u | (unsigned)(-1 - order) : (unsigned)order;
}

//@ of_total_order_f32
// The float that has such a number in the total order of bits.
__device__ float of_total_order_f32(int order) {
  return __uint_as_float((unsigned)(order < 0 ? order ^ 0x7fffffff : order));
}

//@ total_order_f64
// A number in the total order of bits: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
__device__ long long total_order_f64(double x) {
  long long bits = __double_as_longlong(x);
  return bits < 0 ? bits ^ 0x7fffffffffffffffll : bits;
}

//@ reduce_bits
// The bits of a float of EXPONENT and MANTISSA bits, rounded to TO_EXPONENT and TO_MANTISSA
// bits: the mantissa to nearest even, what is then too large to infinity and too small to 0.  U is
// unsigned and as wide as the float, W at least as wide as int.  NaN stays.
template <class U, class W, int EXPONENT, int MANTISSA, int TO_EXPONENT, int TO_MANTISSA>
__device__ U reduce_bits(U bits) {
  const W sign = (W)bits & (W)1 << (EXPONENT + MANTISSA);
  const W field = (((W)1 << EXPONENT) - 1) << MANTISSA;
  if (((W)bits ^ sign) > field) return bits;
  W rounded = bits;
  if (TO_MANTISSA < MANTISSA) {
    const int drop = TO_MANTISSA < MANTISSA ? MANTISSA - TO_MANTISSA : 1;
    rounded = (rounded + (((W)1 << (drop - 1)) - 1) + (rounded >> drop & 1)) >> drop << drop;
  }
  if (TO_EXPONENT < EXPONENT) {
    const int bias = (1 << (EXPONENT - 1)) - 1;
    const int to_exponent = TO_EXPONENT < EXPONENT ? TO_EXPONENT : EXPONENT;
    const int to_bias = (1 << (to_exponent - 1)) - 1;
    const W exponent = rounded & field;
    if (exponent > (W)(bias + to_bias) << MANTISSA) return (U)(sign | field);
    if (exponent <= (W)(bias - to_bias) << MANTISSA) return (U)sign;
  }
  return (U)rounded;
}
