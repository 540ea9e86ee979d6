// Element types that C does not have: bits of narrow floats, pairs of complex numbers.

//@ f16 struct
// IEEE 754 binary16.
struct f16 { unsigned short bits; };

//@ bf16 struct
// The upper half of an f32.
struct bf16 { unsigned short bits; };

//@ f8e5m2 struct
// 5 bits of exponent (bias 15), 2 of mantissa; infinities and NaN as in IEEE 754.
struct f8e5m2 { unsigned char bits; };

//@ f8e4m3 struct
// 4 bits of exponent (bias 7), 3 of mantissa; infinities and NaN as in IEEE 754.
struct f8e4m3 { unsigned char bits; };

//@ f8e4m3fn struct
// 4 bits of exponent (bias 7), 3 of mantissa; no infinities, NaN is 0x7f and 0xff.
struct f8e4m3fn { unsigned char bits; };

//@ f8e4m3b11fnuz struct
// 4 bits of exponent (bias 11), 3 of mantissa; no infinities, no -0, NaN is 0x80.
struct f8e4m3b11fnuz { unsigned char bits; };

//@ f8e3m4 struct
// 3 bits of exponent (bias 3), 4 of mantissa; infinities and NaN as in IEEE 754.
struct f8e3m4 { unsigned char bits; };

//@ f8e5m2fnuz struct
// 5 bits of exponent (bias 16), 2 of mantissa; no infinities, no -0, NaN is 0x80.
struct f8e5m2fnuz { unsigned char bits; };

//@ f8e4m3fnuz struct
// 4 bits of exponent (bias 8), 3 of mantissa; no infinities, no -0, NaN is 0x80.
struct f8e4m3fnuz { unsigned char bits; };

//@ f8e8m0fnu struct
// A power of two: 8 bits of exponent (bias 127); no sign, no 0, NaN is 0xff.
struct f8e8m0fnu { unsigned char bits; };

//@ f4e2m1fn struct
// 2 bits of exponent (bias 1), 1 of mantissa, in the low 4 bits; no infinities, no NaN.
struct f4e2m1fn { unsigned char bits; };

//@ c64 struct
// A complex number of f32 parts.
struct alignas(8) c64 { float re, im; };

//@ c128 struct
// A complex number of f64 parts.
struct alignas(16) c128 { double re, im; };
