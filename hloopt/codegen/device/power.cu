// Powers and angles of pairs of complex numbers in f64.

//@ whole_power_c128 loops: c128 multiply_c128 divide_c128
// x to a whole power by squaring; n in [-99, 99] and not 0.
__device__ c128 whole_power_c128(c128 x, int n) {
  int left = n < 0 ? -n : n;
  c128 result = c128{1.0, 0.0};
  bool begun = false;
  while (true) {
    if (left & 1) {
      result = begun ? multiply_c128(result, x) : x;
      begun = true;
    }
    left >>= 1;
    if (left == 0) break;
    x = multiply_c128(x, x);
  }
  return n < 0 ? divide_c128(c128{1.0, 0.0}, result) : result;
}

//@ power_c128: c128 finite_f64 infinite_f64 nan_f64 multiply_c128 exponential_c128 log_c128 whole_power_c128
// exp(y log x); 1 for base 1 or exponent 0, 0 for base 0 and a positive exponent.  A positive
// infinite base with a real exponent gives inf or 0 by its sign; any other infinite or NaN operand
// gives NaN.
__device__ c128 power_c128(c128 x, c128 y) {
  if ((y.re == 0 && y.im == 0) || (x.re == 1 && x.im == 0)) return c128{1.0, 0.0};
  if (x.re == infinite_f64() && x.im == 0 && y.im == 0) {
    if (y.re > 0) return c128{infinite_f64(), 0.0};
    if (y.re < 0) return c128{0.0, 0.0};
  }
  if (x.re == 0 && x.im == 0 && y.re > 0 && finite_f64(y.im)) return c128{0.0, 0.0};
  if (!finite_f64(x.re) || !finite_f64(x.im) || !finite_f64(y.re) || !finite_f64(y.im) ||
      (x.re == 0 && x.im == 0)) {
    return c128{nan_f64(), nan_f64()};
  }
  if (y.im == 0 && fabs(y.re) < 100 && y.re == trunc(y.re)) {
    c128 whole = whole_power_c128(x, (int)y.re);
    if (finite_f64(whole.re) && finite_f64(whole.im)) return whole;
  }
  return exponential_c128(multiply_c128(y, log_c128(x)));
}

//@ atan2_c128: c128 exponent_c128 scaled_c128 add_c128 multiply_c128 divide_c128 log_c128 sqrt_c128
// -i log((x + iy) / sqrt(x^2 + y^2)), of operands scaled so that no square overflows.
__device__ c128 atan2_c128(c128 y, c128 x) {
  int above = exponent_c128(x), below = exponent_c128(y);
  int shift = -(above > below ? above : below);
  c128 z = scaled_c128(x, shift), w = scaled_c128(y, shift);
  c128 size = sqrt_c128(add_c128(multiply_c128(z, z), multiply_c128(w, w)));
  c128 angle = log_c128(divide_c128(c128{z.re - w.im, z.im + w.re}, size));
  return c128{angle.im, -angle.re};
}
