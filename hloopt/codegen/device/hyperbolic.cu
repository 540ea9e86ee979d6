// Hyperbolic and trigonometric functions of complex numbers in f64, with the infinities and NaN of
// Annex G; cos x = cosh ix, sin x = -i sinh ix, tan x = -i tanh ix.

//@ cosh_c128: c128 finite_f64 infinite_f64 nan_f64 is_infinite_f64
// The hyperbolic cosine: cosh(a) cos(b) + i sinh(a) sin(b).
__device__ c128 cosh_c128(c128 x) {
  double a = x.re, b = x.im;
  if (b == 0) return c128{cosh(a), a == a ? b * copysign(1.0, a) * (a == 0 ? 0.0 : 1.0) : b};
  if (!finite_f64(b)) {
    if (is_infinite_f64(a)) return c128{infinite_f64(), nan_f64()};
    return c128{nan_f64(), a == 0 ? 0.0 : nan_f64()};
  }
  if (fabs(a) < 700) return c128{cosh(a) * cos(b), sinh(a) * sin(b)};
  double root = exp(fabs(a) * 0.5);
  return c128{root * 0.5 * cos(b) * root, copysign(root, a) * 0.5 * sin(b) * root};
}

//@ sinh_c128: c128 finite_f64 nan_f64 is_infinite_f64
// The hyperbolic sine: sinh(a) cos(b) + i cosh(a) sin(b).
__device__ c128 sinh_c128(c128 x) {
  double a = x.re, b = x.im;
  if (b == 0) return c128{sinh(a), b};
  if (!finite_f64(b)) {
    if (a == 0) return c128{a, nan_f64()};
    return c128{is_infinite_f64(a) ? fabs(a) : nan_f64(), nan_f64()};
  }
  if (fabs(a) < 700) return c128{sinh(a) * cos(b), cosh(a) * sin(b)};
  double root = exp(fabs(a) * 0.5);
  return c128{copysign(root, a) * 0.5 * cos(b) * root, root * 0.5 * sin(b) * root};
}

//@ tanh_c128: c128 finite_f64 nan_f64 is_infinite_f64
// The hyperbolic tangent: (sinh(a) cosh(a) + i sin(b) cos(b)) / (sinh(a)^2 + cos(b)^2).
__device__ c128 tanh_c128(c128 x) {
  double a = x.re, b = x.im;
  if (b == 0) return c128{tanh(a), b};
  if (is_infinite_f64(a)) {
    double turn = finite_f64(b) ? sin(b) * cos(b) : b;
    return c128{copysign(1.0, a), copysign(0.0, fabs(b) > 1 ? turn : b)};
  }
  if (!finite_f64(b)) return c128{a == 0 ? a : nan_f64(), nan_f64()};
  double s = sin(b), c = cos(b);
  if (fabs(a) > 22) {
    // Beside cosh(a) the 1 of sinh(a)^2 + 1 is lost.
    double small = exp(-fabs(a));
    return c128{copysign(1.0, a), 4 * s * c * small * small};
  }
  double sh = sinh(a), ch = cosh(a);
  double size = sh * sh + c * c;
  return c128{sh * ch / size, s * c / size};
}

//@ cosine_c128: c128 cosh_c128
// The cosine.
__device__ c128 cosine_c128(c128 x) {
  return cosh_c128(c128{-x.im, x.re});
}

//@ sine_c128: c128 sinh_c128
// The sine.
__device__ c128 sine_c128(c128 x) {
  c128 y = sinh_c128(c128{-x.im, x.re});
  return c128{y.im, -y.re};
}

//@ tan_c128: c128 tanh_c128
// The tangent.
__device__ c128 tan_c128(c128 x) {
  c128 y = tanh_c128(c128{-x.im, x.re});
  return c128{y.im, -y.re};
}

//@ logistic_c128: c128 add_c128 multiply_c128 divide_c128 exponential_c128 cosh_c128
// 1 / (1 + e^-x) without overflow; near its poles, odd multiples of pi i, e^(x/2) / (2 cosh(x/2)).
__device__ c128 logistic_c128(c128 x) {
  if (fabs(x.re) < 1) {
    c128 half = c128{x.re * 0.5, x.im * 0.5};
    c128 size = cosh_c128(half);
    return divide_c128(exponential_c128(half), multiply_c128(c128{2.0, 0.0}, size));
  }
  bool left = x.re < 0;
  c128 power = exponential_c128(left ? x : c128{-x.re, -x.im});
  c128 one = c128{1.0, 0.0};
  return divide_c128(left ? power : one, add_c128(one, power));
}
