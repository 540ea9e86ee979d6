// Discrete Fourier transforms in double precision, by Stockham's passes: lines are in order all the time.
//
// Several lines side by side are one: element i of line l of `wide` lies at i * wide + l, real and
// imaginary parts apart, so that a pass is made of vectors.
#pragma once
#include <math.h>
#include <string.h>

#include "products.h"

namespace hloopt {

typedef VectorOf<double, 32>::type Four;

template <class V>
struct Lane {
  typedef VectorOf<double, 32>::At At;
};
template <>
struct Lane<double> {
  typedef double At;
};

struct Lines {
  double *re, *im, *to_re, *to_im;
  Lines(double* room, long count) : re(room), im(re + count), to_re(im + count), to_im(to_re + count) {}
  void swap() {
    double *const r = re, *const i = im;
    re = to_re, im = to_im, to_re = r, to_im = i;
  }
  // Real parts for imaginary ones and back: between these a transform is the inverse one, but for its scale.
  void invert() {
    double *const r = re, *const s = to_re;
    re = im, im = r, to_re = to_im, to_im = s;
  }
};

// exp(-2 pi i k / n), from the angle of its octant.
inline void root_of_unity(long k, long n, double* re, double* im) {
  k %= n;
  const long octant = 8 * k / n;
  // The distance from the nearest quarter, in turns of 1 / (4 n).
  const long quarter = (octant + 1) / 2, rest = 4 * k - quarter * n;
  const double angle = M_PI / 2 * (double)rest / (double)n;
  const double c = cos(angle), s = sin(angle);
  switch (quarter % 4) {
    case 0: *re = c, *im = -s; break;
    case 1: *re = -s, *im = -c; break;
    case 2: *re = -c, *im = s; break;
    default: *re = s, *im = c;
  }
}

// The roots of a pass: for each p < m those to the power p * j, 0 < j < radix.  Returns where the next ones
// go.
inline double* fill_roots(double* to, long radix, long m) {
  for (long p = 0; p < m; ++p)
    for (long j = 1; j < radix; ++j, to += 2) root_of_unity(p * j, radix * m, to, to + 1);
  return to;
}

template <class V>
struct Both {
  V re, im;
};
template <class V>
inline Both<V> operator+(Both<V> x, Both<V> y) { return {x.re + y.re, x.im + y.im}; }
template <class V>
inline Both<V> operator-(Both<V> x, Both<V> y) { return {x.re - y.re, x.im - y.im}; }
template <class V>
inline Both<V> operator*(Both<V> x, double y) { return {x.re * y, x.im * y}; }
// x times -i
template <class V>
inline Both<V> turned(Both<V> x) { return {x.im, -x.re}; }

template <int RADIX, class V>
inline void butterfly(Both<V>* x) {
  if constexpr (RADIX == 2) {
    const Both<V> a = x[0], b = x[1];
    x[0] = a + b, x[1] = a - b;
  } else if constexpr (RADIX == 3) {
    const Both<V> sum = x[1] + x[2], rest = turned(x[1] - x[2]) * 0.86602540378443864676;
    const Both<V> middle = x[0] - sum * 0.5;
    x[0] = x[0] + sum, x[1] = middle + rest, x[2] = middle - rest;
  } else if constexpr (RADIX == 4) {
    const Both<V> a = x[0] + x[2], b = x[0] - x[2], c = x[1] + x[3], d = turned(x[1] - x[3]);
    x[0] = a + c, x[1] = b + d, x[2] = a - c, x[3] = b - d;
  } else {
    const double c1 = 0.30901699437494742410, c2 = -0.80901699437494742410;
    const double s1 = 0.95105651629515357212, s2 = 0.58778525229247312917;
    const Both<V> a = x[1] + x[4], b = x[2] + x[3], c = turned(x[1] - x[4]), d = turned(x[2] - x[3]);
    const Both<V> p = x[0] + a * c1 + b * c2, q = x[0] + a * c2 + b * c1;
    const Both<V> r = c * s1 + d * s2, t = c * s2 - d * s1;
    x[0] = x[0] + a + b, x[1] = p + r, x[2] = q + t, x[3] = q - t, x[4] = p - r;
  }
}

// One element of each of RADIX parts, and the next as many neighbours as V has; parts are `apart` elements
// apart, results `s`.
template <int RADIX, class V>
inline void pass_step(const Lines& on, long from, long apart, long to, long s, const double* roots) {
  typedef typename Lane<V>::At At;
  Both<V> x[RADIX];
  for (int k = 0; k < RADIX; ++k)
    x[k] = {*(const At*)(on.re + from + k * apart), *(const At*)(on.im + from + k * apart)};
  butterfly<RADIX>(x);
  for (int j = 0; j < RADIX; ++j) {
    V re = x[j].re, im = x[j].im;
    if (j) {
      const double c = roots[2 * j - 2], d = roots[2 * j - 1];
      const V turned = re * d + im * c;
      re = re * c - im * d;
      im = turned;
    }
    *(At*)(on.to_re + to + j * s) = re;
    *(At*)(on.to_im + to + j * s) = im;
  }
}

// With n = RADIX m elements left to transform, s done (times lines side by side):
//   y[q + s (RADIX p + j)] = w_n^(p j) sum over k of w_RADIX^(j k) x[q + s (p + m k)]
template <int RADIX>
__attribute__((noinline, noclone)) void pass(Lines& on, long m, long s, const double* roots) {
  for (long p = 0; p < m; ++p, roots += 2 * (RADIX - 1)) {
    long q = 0;
    for (; q + 4 <= s; q += 4) pass_step<RADIX, Four>(on, q + s * p, s * m, q + s * RADIX * p, s, roots);
    for (; q < s; ++q) pass_step<RADIX, double>(on, q + s * p, s * m, q + s * RADIX * p, s, roots);
  }
  on.swap();
}

const int kMostRadix = 31;

// Any radix, with `units`, its own roots.
template <class V>
inline void any_step(
    const Lines& on, long radix, long from, long apart, long to, long s, const double* roots,
    const double* units) {
  typedef typename Lane<V>::At At;
  Both<V> x[kMostRadix];
  for (long k = 0; k < radix; ++k)
    x[k] = {*(const At*)(on.re + from + k * apart), *(const At*)(on.im + from + k * apart)};
  for (long j = 0; j < radix; ++j) {
    V re = x[0].re, im = x[0].im;
    for (long k = 1, at = j; k < radix; ++k) {
      const double c = units[2 * at], d = units[2 * at + 1];
      re += x[k].re * c - x[k].im * d;
      im += x[k].re * d + x[k].im * c;
      at += j;
      if (at >= radix) at -= radix;
    }
    if (j) {
      const double c = roots[2 * j - 2], d = roots[2 * j - 1];
      const V turned = re * d + im * c;
      re = re * c - im * d;
      im = turned;
    }
    *(At*)(on.to_re + to + j * s) = re;
    *(At*)(on.to_im + to + j * s) = im;
  }
}

inline void any_pass(Lines& on, long radix, long m, long s, const double* roots, const double* units) {
  for (long p = 0; p < m; ++p, roots += 2 * (radix - 1)) {
    long q = 0;
    for (; q + 4 <= s; q += 4) any_step<Four>(on, radix, q + s * p, s * m, q + s * radix * p, s, roots, units);
    for (; q < s; ++q) any_step<double>(on, radix, q + s * p, s * m, q + s * radix * p, s, roots, units);
  }
  on.swap();
}

// A pass in a transform of a known length; `table` has its roots, and behind them its own where it needs them.
template <int RADIX, long M>
struct Pass {
  static constexpr long radix = RADIX, roots = 2 * (RADIX - 1) * M, size = roots + (RADIX > 5 ? 2 * RADIX : 0);
  static void fill(double* table) {
    double* own = fill_roots(table, RADIX, M);
    for (long k = 0; RADIX > 5 && k < RADIX; ++k) root_of_unity(k, RADIX, own + 2 * k, own + 2 * k + 1);
  }
  static void run(Lines& on, long s, const double* table) {
    if constexpr (RADIX > 5) any_pass(on, RADIX, M, s, table, table + roots);
    else pass<RADIX>(on, M, s, table);
  }
};

// All passes of a transform, of some lines side by side.
template <class... Each>
struct Passes {
  double* table;
  void operator()(Lines& on, long wide) const {
    const double* at = table;
    ((Each::run(on, wide, at), at += Each::size, wide *= Each::radix), ...);
  }
};

// What fills tables that are the same in every run answers true, when it has.
template <class... Each>
inline bool fill_passes(const Passes<Each...>& passes) {
  double* at = passes.table;
  ((Each::fill(at), at += Each::size), ...);
  return true;
}

inline bool fill_halves(long count, double* halves) {
  for (long k = 0; k < count; ++k) root_of_unity(k, 2 * count, halves + 2 * k, halves + 2 * k + 1);
  return true;
}

inline void invert(Lines& on) { on.invert(); }

// ---- lines in memory --------------------------------------------------------------------------------------

inline double real_part(float x) { return x; }
inline double real_part(double x) { return x; }
template <class T>
inline double real_part(const T& x) { return x.re; }
inline double imaginary_part(float) { return 0; }
inline double imaginary_part(double) { return 0; }
template <class T>
inline double imaginary_part(const T& x) { return x.im; }

// Lines `first` to before `first + wide` of `lines`, each of `extent` elements, `inner` apart; what is
// behind the last line is that line once more.
struct Places {
  long lines, extent, inner;
  long at(long line) const {
    const long one = line < lines ? line : lines - 1;
    return one / inner * (extent * inner) + one % inner;
  }
};

// `count` elements of each line, and zeros up to `length`.
template <class T>
inline void read_lines(
    const T* from, Places places, long first, long wide, long count, long length, Lines& to) {
  for (long l = 0; l < wide; ++l) {
    const T* const line = from + places.at(first + l);
    for (long i = 0; i < count; ++i) {
      to.re[i * wide + l] = real_part(line[i * places.inner]);
      to.im[i * wide + l] = imaginary_part(line[i * places.inner]);
    }
  }
  memset(to.re + count * wide, 0, (length - count) * wide * sizeof(double));
  memset(to.im + count * wide, 0, (length - count) * wide * sizeof(double));
}

// Pairs of neighbours of real lines as complex numbers.
template <class T>
inline void read_pairs(
    const T* from, Places places, long first, long wide, long count, long length, Lines& to) {
  for (long l = 0; l < wide; ++l) {
    const T* const line = from + places.at(first + l);
    for (long i = 0; i < length; ++i) {
      to.re[i * wide + l] = 2 * i < count ? (double)line[2 * i * places.inner] : 0;
      to.im[i * wide + l] = 2 * i + 1 < count ? (double)line[(2 * i + 1) * places.inner] : 0;
    }
  }
}

// Of the line whose elements k and length - k are conjugate those that are stored, `count` of them, and all
// others.
template <class T>
inline void read_half(
    const T* from, Places places, long first, long wide, long count, long length, Lines& to) {
  read_lines(from, places, first, wide, count, length, to);
  for (long l = 0; l < wide; ++l) {
    to.im[l] = 0;
    for (long k = 1; 2 * k <= length; ++k) {
      const long here = k * wide + l, there = (length - k) * wide + l;
      if (here == there) to.im[here] = 0;
      else to.re[there] = to.re[here], to.im[there] = -to.im[here];
    }
  }
}

// The transform of pairs that is the inverse one's start: half + 1 elements become `half`, by roots of 2
// half.
inline void join_halves(Lines& on, long wide, long half, const double* roots) {
  memcpy(on.to_re, on.re, (half + 1) * wide * sizeof(double));
  memcpy(on.to_im, on.im, (half + 1) * wide * sizeof(double));
  for (long k = 0; k < half; ++k) {
    const double c = roots[2 * k], d = roots[2 * k + 1];
    for (long l = 0; l < wide; ++l) {
      const long here = k * wide + l, there = (half - k) * wide + l;
      const bool is_end = k == 0;
      const double ar = on.to_re[here], ai = is_end ? 0 : on.to_im[here];
      const double br = on.to_re[there], bi = is_end ? 0 : -on.to_im[there];
      // i times the conjugate root times the difference.
      const double dr = ar - br, di = ai - bi;
      const double pr = dr * c + di * d, pi = di * c - dr * d;
      on.re[here] = (ar + br) - pi;
      on.im[here] = (ai + bi) + pr;
    }
  }
}

// The transform of twice as many real numbers out of that of their pairs: half + 1 elements.
inline void split_halves(Lines& on, long wide, long half, const double* roots) {
  for (long k = 0; k <= half; ++k) {
    double c = -1, d = 0;
    if (k < half) c = roots[2 * k], d = roots[2 * k + 1];
    for (long l = 0; l < wide; ++l) {
      const long here = k % half * wide + l, there = (half - k) % half * wide + l;
      const double ar = on.re[here], ai = on.im[here], br = on.re[there], bi = -on.im[there];
      const double dr = ar - br, di = ai - bi;
      // -i times the root times the difference.
      const double pr = dr * c - di * d, pi = dr * d + di * c;
      on.to_re[k * wide + l] = ((ar + br) + pi) * 0.5;
      on.to_im[k * wide + l] = ((ai + bi) - pr) * 0.5;
    }
  }
  on.swap();
}

inline void set_element(float& to, double re, double) { to = (float)re; }
inline void set_element(double& to, double re, double) { to = re; }
template <class T>
inline void set_element(T& to, double re, double im) { to.re = re, to.im = im; }

template <class T>
inline void write_lines(
    const Lines& from, double scale, T* to, Places places, long first, long wide, long count) {
  for (long l = 0; l < wide && first + l < places.lines; ++l) {
    T* const line = to + places.at(first + l);
    for (long i = 0; i < count; ++i)
      set_element(line[i * places.inner], from.re[i * wide + l] * scale, from.im[i * wide + l] * scale);
  }
}

template <class T>
inline void write_pairs(
    const Lines& from, double scale, T* to, Places places, long first, long wide, long count) {
  for (long l = 0; l < wide && first + l < places.lines; ++l) {
    T* const line = to + places.at(first + l);
    for (long i = 0; i < count; ++i) {
      line[2 * i * places.inner] = (T)(from.re[i * wide + l] * scale);
      line[(2 * i + 1) * places.inner] = (T)(from.im[i * wide + l] * scale);
    }
  }
}

// ---- lengths with large primes: a convolution with a chirp (Bluestein, 1970) ------------------------------

// exp(-pi i k² / n) for k < n, and, in `spectrum`, the transform of length m of their conjugates, over m.
template <class Passes>
inline bool fill_chirp(long n, long m, double* chirp, double* spectrum, double* room, const Passes& passes) {
  Lines on(room, m);
  memset(room, 0, 2 * m * sizeof(double));
  for (long k = 0, square = 0; k < n; ++k) {
    root_of_unity(square, 2 * n, chirp + 2 * k, chirp + 2 * k + 1);
    // (k + 1)² = k² + 2 k + 1
    square = (square + 2 * k + 1) % (2 * n);
    const long other = k ? m - k : 0;
    on.re[k] = on.re[other] = chirp[2 * k];
    on.im[k] = on.im[other] = -chirp[2 * k + 1];
  }
  passes(on, 1);
  for (long k = 0; k < m; ++k) {
    spectrum[2 * k] = on.re[k] / (double)m;
    spectrum[2 * k + 1] = on.im[k] / (double)m;
  }
  return true;
}

// Each of `count` elements of all lines times its own factor.
inline void scale_lines(Lines& on, long wide, long count, const double* by) {
  for (long k = 0; k < count; ++k) {
    const double c = by[2 * k], d = by[2 * k + 1];
    for (long at = k * wide; at < (k + 1) * wide; ++at) {
      const double re = on.re[at], im = on.im[at];
      on.re[at] = re * c - im * d;
      on.im[at] = re * d + im * c;
    }
  }
}

// n elements transformed by `passes` of length m.
template <class Passes>
inline void chirped(
    Lines& on, long wide, long n, long m, const double* chirp, const double* spectrum, const Passes& passes) {
  scale_lines(on, wide, n, chirp);
  memset(on.re + n * wide, 0, (m - n) * wide * sizeof(double));
  memset(on.im + n * wide, 0, (m - n) * wide * sizeof(double));
  passes(on, wide);
  scale_lines(on, wide, m, spectrum);
  on.invert();
  passes(on, wide);
  on.invert();
  scale_lines(on, wide, n, chirp);
}

}  // namespace hloopt
