// Integer arithmetic that C leaves undefined or does not have; a widened s4 or u4 passes as a byte.

//@ divide_signed
// The quotient, truncated; all bits for a divisor 0, the least number over -1 is itself.
template <class T>
__device__ T divide_signed(T x, T y) {
  if (y == 0) return (T)-1;
  if (y == -1) return (T)(0ull - (unsigned long long)x);
  return (T)(x / y);
}

//@ divide_unsigned
// The quotient; all bits for a divisor 0.
template <class T>
__device__ T divide_unsigned(T x, T y) {
  return y == 0 ? (T)~(T)0 : (T)(x / y);
}

//@ remainder_signed
// The rest, with the sign of the dividend; the dividend for a divisor 0.
template <class T>
__device__ T remainder_signed(T x, T y) {
  if (y == 0) return x;
  return y == -1 ? (T)0 : (T)(x % y);
}

//@ remainder_unsigned
// The rest; the dividend for a divisor 0.
template <class T>
__device__ T remainder_unsigned(T x, T y) {
  return y == 0 ? x : (T)(x % y);
}

//@ power_unsigned loops
// x to the power y by squaring, wrapping; U is the unsigned type at least as wide as int.
template <class U>
__device__ U power_unsigned(U x, U y) {
  U result = 1;
  for (; y != 0; y >>= 1) {
    if (y & 1) result *= x;
    x *= x;
  }
  return result;
}

//@ power_signed: power_unsigned
// x to the power y, wrapping; a negative exponent gives 0 but for the bases 1 and -1.
template <class U, class T>
__device__ T power_signed(T x, T y) {
  if (y >= 0) return (T)power_unsigned<U>((U)x, (U)y);
  if (x == 1) return 1;
  if (x == -1) return (T)((y & 1) ? -1 : 1);
  return 0;
}

//@ multiply_high_s64
// The upper half of the product of two s64.
__device__ long long multiply_high_s64(long long x, long long y) {
  unsigned long long high = __umul64hi((unsigned long long)x, (unsigned long long)y);
  if (x < 0) high -= (unsigned long long)y;
  if (y < 0) high -= (unsigned long long)x;
  return (long long)high;
}

//@ saturate_signed
// A float as a signed number of BITS bits, truncated; out of range saturates, NaN is 0.
template <class T, int BITS, class F>
__device__ T saturate_signed(F x) {
#ifdef __CUDACC__
  // PTX saturates, and takes an f32 NaN to 0; the C++ cast leaves both undefined.
  if constexpr (sizeof(F) == 4 && BITS <= 32) {
    int whole;
    asm("cvt.rzi.s32.f32 %0, %1;" : "=r"(whole) : "f"(x));
    const int most = (int)((1ull << (BITS - 1)) - 1);
    return (T)(whole > most ? most : whole < -most - 1 ? -most - 1 : whole);
  }
#endif
  const F bound = (F)(1ull << (BITS - 1));
  const T greatest = (T)((1ull << (BITS - 1)) - 1);
  if (x >= bound) return greatest;
  if (x <= -bound) return (T)(-greatest - 1);
  return x == x ? (T)x : (T)0;
}

//@ saturate_unsigned
// A float as an unsigned number of BITS bits, truncated; saturates, NaN is 0.
template <class T, int BITS, class F>
__device__ T saturate_unsigned(F x) {
#ifdef __CUDACC__
  if constexpr (sizeof(F) == 4 && BITS <= 32) {
    unsigned whole;
    asm("cvt.rzi.u32.f32 %0, %1;" : "=r"(whole) : "f"(x));
    const unsigned most = 0xffffffffu >> (32 - BITS);
    return (T)(whole > most ? most : whole);
  }
#endif
  const F bound = (F)2 * (F)(1ull << (BITS - 1));
  if (x >= bound) return (T)(~0ull >> (64 - BITS));
  return x > (F)0 ? (T)x : (T)0;
}

//@ stochastic_signed: saturate_signed
// A float as a signed number of BITS bits: the fraction of its size, times 2^WIDTH, is how many of
// the numbers below 2^WIDTH make it grow by one.
template <class T, int BITS, int WIDTH>
__device__ T stochastic_signed(double x, unsigned long long random) {
  const double bound = (double)(1ull << (BITS - 1));
  const double greatest = (double)((1ull << (BITS - 1)) - 1);
  if (!(x > -bound && x < greatest)) return saturate_signed<T, BITS>(x);
  double size = fabs(x);
  double whole = trunc(size);
  double chances = (size - whole) * 2.0 * (double)(1ull << (WIDTH - 1));
  long long count = (long long)whole + (random < (unsigned long long)chances);
  return (T)(x < 0 ? -count : count);
}
