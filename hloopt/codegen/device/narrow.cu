// Narrow floats: to f32, exactly, and from f32, rounded once to nearest even.

//@ narrow_size
// The code, without sign, of the size of x in a format of MANTISSA bits, as if it had no greatest
// number; x is not a NaN.
template <int MANTISSA, int BIAS>
__device__ unsigned narrow_size(float x) {
  const int drop = 23 - MANTISSA;
  unsigned size = __float_as_uint(x) & 0x7fffffffu;
  if (size < (unsigned)(128 - BIAS) << 23) {
    // Subnormal in the format: a whole number of its smallest steps.
    float steps = __uint_as_float(size) * __uint_as_float((unsigned)(126 + BIAS + MANTISSA) << 23);
    return (unsigned)rintf(steps);
  }
  unsigned rounded = size + ((1u << (drop - 1)) - 1) + (size >> drop & 1);
  return (rounded >> drop) - ((unsigned)(127 - BIAS) << MANTISSA);
}

//@ widen_size
// The number whose code is `size`, with the sign of bit 31 of `sign`; neither infinite nor NaN.
template <int MANTISSA, int BIAS>
__device__ float widen_size(unsigned size, unsigned sign) {
  unsigned bits = (size << (23 - MANTISSA)) + ((unsigned)(127 - BIAS) << 23);
  if (size >> MANTISSA == 0) {
    float step = __uint_as_float((unsigned)(128 - BIAS - MANTISSA) << 23);
    bits = __float_as_uint((float)size * step);
  }
  return __uint_as_float(sign << 31 | bits);
}

//@ widen_f16: f16 widen_size
// f16 as f32.
__device__ float widen_f16(f16 x) {
#ifdef __CUDACC__
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
#else
  unsigned size = x.bits & 0x7fffu, sign = x.bits >> 15;
  if (size >= 0x7c00u) return __uint_as_float(sign << 31 | 0x7f800000u | (size & 0x3ffu) << 13);
  return widen_size<10, 15>(size, sign);
#endif
}

//@ round_f16: f16 narrow_size
// f32 to f16; the hardware has one NaN.
__device__ f16 round_f16(float x) {
  f16 narrow;
#ifdef __CUDACC__
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
#else
  unsigned sign = __float_as_uint(x) >> 16 & 0x8000u;
  unsigned size = x == x ? narrow_size<10, 15>(x) : 0x7e00u;
  narrow.bits = (unsigned short)(sign | (size < 0x7c00u || x != x ? size : 0x7c00u));
#endif
  return narrow;
}

//@ convert_f16: f16 round_f16
// f32 to f16 where it is called by name: a NaN keeps its sign and the upper bits of its payload.
__device__ f16 convert_f16(float x) {
  unsigned bits = __float_as_uint(x);
  if (x == x) return round_f16(x);
  return f16{(unsigned short)((bits >> 16 & 0x8000u) | 0x7e00u | (bits >> 13 & 0x3ffu))};
}

//@ widen_bf16: bf16
// bf16 as f32.
__device__ float widen_bf16(bf16 x) {
  return __uint_as_float((unsigned)x.bits << 16);
}

//@ round_bf16: bf16
// f32 to bf16; the hardware has one NaN.
__device__ bf16 round_bf16(float x) {
  bf16 narrow;
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
#else
  unsigned bits = __float_as_uint(x);
  unsigned rounded = bits + 0x7fffu + (bits >> 16 & 1);
  narrow.bits = (unsigned short)(x == x ? rounded >> 16 : (bits >> 16 & 0x8000u) | 0x7fc0u);
#endif
  return narrow;
}

//@ convert_bf16: bf16 round_bf16
// f32 to bf16 where it is called by name: a NaN keeps its sign.
__device__ bf16 convert_bf16(float x) {
  if (x == x) return round_bf16(x);
  return bf16{(unsigned short)((__float_as_uint(x) >> 16 & 0x8000u) | 0x7fc0u)};
}

//@ widen_f8e5m2: f16 f8e5m2 widen_size widen_f16
// f8e5m2 as f32: the upper half of an f16.
__device__ float widen_f8e5m2(f8e5m2 x) {
#ifdef __CUDACC__
  return widen_f16(f16{(unsigned short)(x.bits << 8)});
#else
  unsigned size = x.bits & 0x7fu, sign = x.bits >> 7;
  if (size > 0x7cu) return __uint_as_float(sign << 31 | 0x7fc00000u);
  if (size == 0x7cu) return __uint_as_float(sign << 31 | 0x7f800000u);
  return widen_size<2, 15>(size, sign);
#endif
}

//@ round_f8e5m2: f8e5m2 narrow_size
// f32 to f8e5m2; infinite from 61440.
__device__ f8e5m2 round_f8e5m2(float x) {
  unsigned sign = __float_as_uint(x) >> 24 & 0x80u;
  if (x != x) return f8e5m2{(unsigned char)(sign | 0x7eu)};
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 890
  if (fabsf(x) >= 61440.0f) return f8e5m2{(unsigned char)(sign | 0x7cu)};
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return f8e5m2{(unsigned char)pair};
#else
  unsigned size = narrow_size<2, 15>(x);
  return f8e5m2{(unsigned char)(sign | (size < 0x7cu ? size : 0x7cu))};
#endif
}

//@ widen_f8e4m3: f8e4m3 widen_size
// f8e4m3 as f32.
__device__ float widen_f8e4m3(f8e4m3 x) {
  unsigned size = x.bits & 0x7fu, sign = x.bits >> 7;
  if (size > 0x78u) return __uint_as_float(sign << 31 | 0x7fc00000u);
  if (size == 0x78u) return __uint_as_float(sign << 31 | 0x7f800000u);
  return widen_size<3, 7>(size, sign);
}

//@ round_f8e4m3: f8e4m3 narrow_size
// f32 to f8e4m3; infinite from 248.
__device__ f8e4m3 round_f8e4m3(float x) {
  unsigned sign = __float_as_uint(x) >> 24 & 0x80u;
  if (x != x) return f8e4m3{(unsigned char)(sign | 0x7cu)};
  unsigned size = narrow_size<3, 7>(x);
  return f8e4m3{(unsigned char)(sign | (size < 0x78u ? size : 0x78u))};
}

//@ widen_f8e4m3fn: f16 f8e4m3fn widen_size widen_f16
// f8e4m3fn as f32.
__device__ float widen_f8e4m3fn(f8e4m3fn x) {
  unsigned size = x.bits & 0x7fu, sign = x.bits >> 7;
  if (size == 0x7fu) return __uint_as_float(sign << 31 | 0x7fc00000u);
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 890
  unsigned pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"((unsigned short)x.bits));
  return widen_f16(f16{(unsigned short)pair});
#else
  return widen_size<3, 7>(size, sign);
#endif
}

//@ round_f8e4m3fn: f8e4m3fn narrow_size
// f32 to f8e4m3fn; NaN where it would round above 448.
__device__ f8e4m3fn round_f8e4m3fn(float x) {
  unsigned sign = __float_as_uint(x) >> 24 & 0x80u;
  if (!(fabsf(x) <= 464.0f)) return f8e4m3fn{(unsigned char)(sign | 0x7fu)};
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 890
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return f8e4m3fn{(unsigned char)pair};
#else
  return f8e4m3fn{(unsigned char)(sign | narrow_size<3, 7>(x))};
#endif
}

//@ widen_f8e3m4: f8e3m4 widen_size
// f8e3m4 as f32.
__device__ float widen_f8e3m4(f8e3m4 x) {
  unsigned size = x.bits & 0x7fu, sign = x.bits >> 7;
  if (size > 0x70u) return __uint_as_float(sign << 31 | 0x7fc00000u);
  if (size == 0x70u) return __uint_as_float(sign << 31 | 0x7f800000u);
  return widen_size<4, 3>(size, sign);
}

//@ round_f8e3m4: f8e3m4 narrow_size
// f32 to f8e3m4; infinite from 15.75.
__device__ f8e3m4 round_f8e3m4(float x) {
  unsigned sign = __float_as_uint(x) >> 24 & 0x80u;
  if (x != x) return f8e3m4{(unsigned char)(sign | 0x78u)};
  unsigned size = narrow_size<4, 3>(x);
  return f8e3m4{(unsigned char)(sign | (size < 0x70u ? size : 0x70u))};
}

//@ widen_unsigned_zero: widen_size
// A format without -0 whose NaN is 0x80, as f32; that NaN has a sign.
template <int MANTISSA, int BIAS>
__device__ float widen_unsigned_zero(unsigned code) {
  if (code == 0x80u) return __uint_as_float(0xffc00000u);
  return widen_size<MANTISSA, BIAS>(code & 0x7fu, code >> 7);
}

//@ round_unsigned_zero: narrow_size
// f32 to a format without -0 and infinities: NaN where it would round above the greatest number.
template <int MANTISSA, int BIAS>
__device__ unsigned char round_unsigned_zero(float x) {
  if (x != x) return 0x80;
  unsigned size = narrow_size<MANTISSA, BIAS>(x);
  if (size > 0x7fu) return 0x80;
  return (unsigned char)(size == 0 ? 0 : (__float_as_uint(x) >> 24 & 0x80u) | size);
}

//@ widen_f8e4m3b11fnuz: f8e4m3b11fnuz widen_unsigned_zero
// f8e4m3b11fnuz as f32.
__device__ float widen_f8e4m3b11fnuz(f8e4m3b11fnuz x) {
  return widen_unsigned_zero<3, 11>(x.bits);
}

//@ round_f8e4m3b11fnuz: f8e4m3b11fnuz round_unsigned_zero
// f32 to f8e4m3b11fnuz; the greatest number is 30.
__device__ f8e4m3b11fnuz round_f8e4m3b11fnuz(float x) {
  return f8e4m3b11fnuz{round_unsigned_zero<3, 11>(x)};
}

//@ widen_f8e5m2fnuz: f8e5m2fnuz widen_unsigned_zero
// f8e5m2fnuz as f32.
__device__ float widen_f8e5m2fnuz(f8e5m2fnuz x) {
  return widen_unsigned_zero<2, 16>(x.bits);
}

//@ round_f8e5m2fnuz: f8e5m2fnuz round_unsigned_zero
// f32 to f8e5m2fnuz; the greatest number is 57344.
__device__ f8e5m2fnuz round_f8e5m2fnuz(float x) {
  return f8e5m2fnuz{round_unsigned_zero<2, 16>(x)};
}

//@ widen_f8e4m3fnuz: f8e4m3fnuz widen_unsigned_zero
// f8e4m3fnuz as f32.
__device__ float widen_f8e4m3fnuz(f8e4m3fnuz x) {
  return widen_unsigned_zero<3, 8>(x.bits);
}

//@ round_f8e4m3fnuz: f8e4m3fnuz round_unsigned_zero
// f32 to f8e4m3fnuz; the greatest number is 240.
__device__ f8e4m3fnuz round_f8e4m3fnuz(float x) {
  return f8e4m3fnuz{round_unsigned_zero<3, 8>(x)};
}

//@ widen_f8e8m0fnu: f8e8m0fnu
// f8e8m0fnu as f32; the least number is a subnormal of it.
__device__ float widen_f8e8m0fnu(f8e8m0fnu x) {
  if (x.bits == 0xffu) return __uint_as_float(0x7fc00000u);
  return __uint_as_float(x.bits == 0 ? 0x00400000u : (unsigned)x.bits << 23);
}

//@ round_f8e8m0fnu: f8e8m0fnu
// f32 to f8e8m0fnu, halves up, and up from all between the two least numbers; NaN for 0, negative
// numbers and what exceeds the greatest.
__device__ f8e8m0fnu round_f8e8m0fnu(float x) {
  if (!(x > 0.0f)) return f8e8m0fnu{0xff};
  unsigned bits = __float_as_uint(x);
  if (bits < 0x00800000u) return f8e8m0fnu{(unsigned char)(bits > 0x00400000u)};
  unsigned rounded = (bits + 0x00400000u) >> 23;
  return f8e8m0fnu{(unsigned char)(rounded < 0xffu ? rounded : 0xffu)};
}

//@ widen_f4e2m1fn: f4e2m1fn widen_size
// f4e2m1fn as f32.
__device__ float widen_f4e2m1fn(f4e2m1fn x) {
  return widen_size<1, 1>(x.bits & 7u, x.bits >> 3 & 1u);
}

//@ round_f4e2m1fn: f4e2m1fn narrow_size
// f32 to f4e2m1fn: 6 for all that is larger, -0 for NaN.
__device__ f4e2m1fn round_f4e2m1fn(float x) {
  if (x != x) return f4e2m1fn{8};
  unsigned size = narrow_size<1, 1>(x);
  return f4e2m1fn{(unsigned char)((__float_as_uint(x) >> 28 & 8u) | (size < 7u ? size : 7u))};
}

//@ round_to_odd
// f64 to f32, rounded to odd: what is rounded again, to 22 bits or fewer, is as if rounded once
// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
__device__ float round_to_odd(double x) {
  float near = (float)x;
  double wide = (double)near;
  unsigned bits = __float_as_uint(near);
  if (x != x || wide == x) return near;
  if (fabs(wide) > fabs(x)) --bits;
  return __uint_as_float(bits | 1);
}
