// Inverse trigonometric and hyperbolic functions of complex numbers in f64: Hull, Fairgrieve and
// Tang, "Implementing the complex arcsine and arccosine functions using exception handling" (1997).

//@ Angles struct
// Both angles of a number in the first quadrant and the size of their common imaginary part:
// asin = (first angle, size), acos = (second angle, -size).
struct Angles { double asin, acos, size; };

//@ angles_c128: c128 log_size_c128 Angles
// The angles of a + bi with 0 <= a and 0 <= b, neither NaN.
__device__ Angles angles_c128(double a, double b) {
  if (a > 0x1p+500 || b > 0x1p+500) {
    double size = log_size_c128(c128{a, b}) + 0x1.62e42fefa39efp-1;
    return Angles{atan2(a, b), atan2(b, a), size};
  }
  if (a < 1 && b <= (1 - a) * 0x1p-30) {
    return Angles{asin(a), acos(a), b / sqrt((1 - a) * (1 + a))};
  }
  double right = hypot(a + 1, b), left = hypot(a - 1, b);
  double mean = 0.5 * (right + left);
  double square = b * b / (right + (a + 1));
  double beside = a < 1 ? b * b / (left + (1 - a)) : left + (a - 1);
  double excess = 0.5 * (square + beside);
  double size = mean <= 1.5 ? log1p(excess + sqrt(excess * (mean + 1)))
                            : log(mean + sqrt(mean * mean - 1));
  double ratio = a / mean;
  if (ratio <= 0.6417) return Angles{asin(ratio), acos(ratio), size};
  double whole = mean + a;
  double height = a <= 1 ? sqrt(0.5 * whole * (square + (left + (1 - a))))
                         : b * sqrt(0.5 * (whole / (right + (a + 1)) + whole / (left + (a - 1))));
  return Angles{atan2(a, height), atan2(height, a), size};
}

//@ asin_c128: c128 infinite_f64 nan_f64 is_infinite_f64 Angles angles_c128
// The inverse sine.
__device__ c128 asin_c128(c128 x) {
  double a = x.re, b = x.im;
  if (a != a || b != b) {
    double size = is_infinite_f64(a) || is_infinite_f64(b) ? infinite_f64() : nan_f64();
    return c128{a == 0 && size != size ? a : nan_f64(), copysign(size, b)};
  }
  Angles found = angles_c128(fabs(a), fabs(b));
  return c128{copysign(found.asin, a), copysign(found.size, b)};
}

//@ acos_c128: c128 infinite_f64 nan_f64 is_infinite_f64 Angles angles_c128
// The inverse cosine.
__device__ c128 acos_c128(c128 x) {
  double a = x.re, b = x.im;
  const double half_pi = 0x1.921fb54442d18p+0;
  if (a != a || b != b) {
    double size = is_infinite_f64(a) || is_infinite_f64(b) ? infinite_f64() : nan_f64();
    return c128{a == 0 && size != size ? half_pi : nan_f64(), -copysign(size, b)};
  }
  Angles found = angles_c128(fabs(a), fabs(b));
  double angle = a < 0 ? 2 * half_pi - found.acos : found.acos;
  return c128{angle, -copysign(found.size, b)};
}

//@ acosh_c128: c128 acos_c128
// The inverse hyperbolic cosine: i acos(x) or -i acos(x), in the right half plane.
__device__ c128 acosh_c128(c128 x) {
  c128 turned = acos_c128(x);
  return c128{fabs(turned.im), x.im != x.im ? turned.re : copysign(turned.re, x.im)};
}

//@ asinh_c128: c128 asin_c128
// The inverse hyperbolic sine: the inverse sine with parts exchanged before and after.
__device__ c128 asinh_c128(c128 x) {
  c128 turned = asin_c128(c128{x.im, x.re});
  return c128{turned.im, turned.re};
}

//@ atanh_c128: c128 nan_f64 is_infinite_f64
// The inverse hyperbolic tangent: log1p(4a / ((1 - a)^2 + b^2)) / 4 and half the angle of
// (1 - a)(1 + a) - b^2 + 2bi.
__device__ c128 atanh_c128(c128 x) {
  double a = fabs(x.re), b = fabs(x.im);
  const double half_pi = 0x1.921fb54442d18p+0;
  if (a != a || b != b) {
    if (is_infinite_f64(a) || x.re == 0) return c128{copysign(0.0, x.re), nan_f64()};
    if (is_infinite_f64(b)) return c128{copysign(0.0, x.re), copysign(half_pi, x.im)};
    return c128{nan_f64(), nan_f64()};
  }
  double re, im;
  if (a > 0x1p+500 || b > 0x1p+500) {
    double size = hypot(a * 0x1p-2, b * 0x1p-2);
    re = is_infinite_f64(size) ? 0.0 : a * 0x1p-2 / size / size * 0x1p-2;
    im = half_pi;
  } else if (a == 1 && b < 0x1p-500) {
    re = 0.5 * (0x1.62e42fefa39efp-1 - log(b));
    im = b == 0 ? 0.0 : 0.5 * half_pi;
  } else {
    re = 0.25 * log1p(4 * a / ((1 - a) * (1 - a) + b * b));
    im = 0.5 * atan2(2 * b, (1 - a) * (1 + a) - b * b);
  }
  return c128{copysign(re, x.re), copysign(im, x.im)};
}
