// Matrices in rows, in double precision: reading and writing them, products, triangular systems.
#pragma once
#include <math.h>

#include "products.h"

namespace hloopt {

struct Pair {
  double re, im;
};

inline Pair operator+(Pair x, Pair y) { return {x.re + y.re, x.im + y.im}; }
inline Pair operator-(Pair x, Pair y) { return {x.re - y.re, x.im - y.im}; }
inline Pair operator-(Pair x) { return {-x.re, -x.im}; }
inline Pair operator*(Pair x, Pair y) { return {x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re}; }
inline Pair operator*(Pair x, double y) { return {x.re * y, x.im * y}; }
inline Pair operator/(Pair x, double y) { return {x.re / y, x.im / y}; }
// Smith, Algorithm 116 (1962): by the larger part of the divisor, so that no square overflows.
inline Pair operator/(Pair x, Pair y) {
  if (fabs(y.re) >= fabs(y.im)) {
    if (y.re == 0 && y.im == 0) return {x.re / fabs(y.re), x.im / fabs(y.re)};
    const double ratio = y.im / y.re, scale = 1 / (y.re + y.im * ratio);
    return {(x.re + x.im * ratio) * scale, (x.im - x.re * ratio) * scale};
  }
  const double ratio = y.re / y.im, scale = 1 / (y.re * ratio + y.im);
  return {(x.re * ratio + x.im) * scale, (x.im * ratio - x.re) * scale};
}

inline double real(double x) { return x; }
inline double real(Pair x) { return x.re; }
inline double imaginary(double) { return 0; }
inline double imaginary(Pair x) { return x.im; }
inline double conjugate(double x) { return x; }
inline Pair conjugate(Pair x) { return {x.re, -x.im}; }
inline void set(double& to, double re) { to = re; }
inline void set(Pair& to, double re) { to = {re, 0}; }
// What LAPACK takes for the size of an element.
inline double weight(double x) { return fabs(x); }
inline double weight(Pair x) { return fabs(x.re) + fabs(x.im); }

// Between what lies in memory and double precision.
template <class T>
inline void carry(const T& from, double& to) { to = (double)from; }
template <class T>
inline void carry(const T& from, Pair& to) { to.re = from.re, to.im = from.im; }
inline void carry(double from, float& to) { to = (float)from; }
template <class T>
inline void carry(const Pair& from, T& to) { to.re = from.re, to.im = from.im; }
inline void carry(const Pair& from, Pair& to) { to = from; }

// to[i][j] = from[i][j] for m rows and n columns, by tiles where neighbours of one do not lie side by side; F
// or T is C, which is double or Pair.
template <class C, class F, class T>
inline void copy_matrix(
    long m, long n, const F* from, long fm, long fn, bool conjugates, T* to, long tm, long tn) {
  const bool is_plain = fn == 1 && tn == 1;
  const long tile = is_plain ? n : 16;
  for (long i0 = 0; i0 < m; i0 += 16)
    for (long j0 = 0; j0 < n; j0 += tile)
      for (long i = i0; i < least(m, i0 + 16); ++i) {
        const F* const row = from + i * fm;
        T* const out = to + i * tm;
        const long last = least(n, j0 + tile);
        C x;
        if (is_plain)
          for (long j = j0; j < last; ++j) {
            carry(row[j], x);
            carry(conjugates ? conjugate(x) : x, out[j]);
          }
        else
          for (long j = j0; j < last; ++j) {
            carry(row[j * fn], x);
            carry(conjugates ? conjugate(x) : x, out[j * tn]);
          }
      }
}

template <class C, class T>
__attribute__((noinline, noclone)) void read_matrix(
    long m, long n, const T* from, long fm, long fn, bool conjugates, C* to, long apart) {
  copy_matrix<C>(m, n, from, fm, fn, conjugates, to, apart, 1);
}

// Where columns are neighbours in memory, these are what is walked along.
template <class C, class T>
__attribute__((noinline, noclone)) void write_matrix(
    long m, long n, const C* from, long apart, bool conjugates, T* to, long tm, long tn) {
  if (tm == 1 && tn != 1)
    copy_matrix<C>(n, m, from, 1, apart, conjugates, to, tn, 1);
  else
    copy_matrix<C>(m, n, from, apart, 1, conjugates, to, tm, tn);
}

// y[j] -= x[j] * times
template <class C>
inline void subtract_row(long n, C times, const C* __restrict__ x, C* __restrict__ y) {
  for (long j = 0; j < n; ++j) y[j] = y[j] - times * x[j];
}

// ---- c[m][n] -= sum over k of l[m][k] * r[k][n]; rows of c and r have no gaps -----------------------------

const long kPart = 192;
// Below so many multiply-adds nothing is worth packing.
const long kFewProducts = 4096;

inline void negated(double x, bool, double* to) { *to = -x; }
inline void negated(Pair x, bool conjugates, double* to) {
  to[0] = -x.re;
  to[1] = conjugates ? x.im : -x.im;
}

// m, k at most kPart.  Of complex numbers each row of l is the 2 k real numbers it is made of, and each row
// of r two: itself, and i times itself.
inline void subtract_packed(
    long m, long n, long k, const double* l, const double* r, long rk, double* c, long cm) {
  large_product<double>(m, n, k, l, k, 1, r, rk, 1, c, cm, true);
}

inline void subtract_packed(
    long m, long n, long k, const double* l, const Pair* r, long rk, Pair* c, long cm) {
  static thread_local double turned[2 * kPart * 2 * kPart];
  for (long n0 = 0; n0 < n; n0 += kPart) {
    const long some = least(kPart, n - n0);
    for (long at = 0; at < k; ++at) {
      double* const here = turned + at * 4 * some;
      const Pair* const row = r + at * rk + n0;
      memcpy(here, row, some * sizeof(Pair));
      for (long j = 0; j < some; ++j) {
        here[2 * some + 2 * j] = -row[j].im;
        here[2 * some + 2 * j + 1] = row[j].re;
      }
    }
    large_product<double>(
        m, 2 * some, 2 * k, l, 2 * k, 1, turned, 2 * some, 1, (double*)(c + n0), 2 * cm, true);
  }
}

template <class C>
__attribute__((noinline, noclone)) void subtract_product(
    long m, long n, long k, const C* l, long lm, long lk, bool conjugates, const C* r, long rk, C* c,
    long cm) {
  if (m * n * k < kFewProducts || m < 4 || n < 4 || k < 4) {
    for (long i = 0; i < m; ++i)
      for (long at = 0; at < k; ++at) {
        const C left = l[i * lm + at * lk];
        subtract_row(n, conjugates ? conjugate(left) : left, r + at * rk, c + i * cm);
      }
    return;
  }
  const long parts = sizeof(C) / sizeof(double);
  static thread_local double packed[parts * kPart * kPart];
  for (long k0 = 0; k0 < k; k0 += kPart) {
    const long depth = least(kPart, k - k0);
    for (long m0 = 0; m0 < m; m0 += kPart) {
      const long rows = least(kPart, m - m0);
      const C* const from = l + m0 * lm + k0 * lk;
      if (lm < lk)
        for (long at = 0; at < depth; ++at)
          for (long i = 0; i < rows; ++i)
            negated(from[i * lm + at * lk], conjugates, packed + (i * depth + at) * parts);
      else
        for (long i = 0; i < rows; ++i)
          for (long at = 0; at < depth; ++at)
            negated(from[i * lm + at * lk], conjugates, packed + (i * depth + at) * parts);
      subtract_packed(rows, n, depth, packed, r + k0 * rk, rk, c + m0 * cm, cm);
    }
  }
}

// ---- triangular systems -----------------------------------------------------------------------------------

// x of w x = b in place of b, for w that is lower triangular: halves, and rows for small ones.
template <bool UNIT, class C>
__attribute__((noinline, noclone)) void solve_rows(long n, long columns, const C* w, long apart, C* x, long xm) {
  if (n > 16) {
    const long half = n / 2;
    solve_rows<UNIT>(half, columns, w, apart, x, xm);
    subtract_product(n - half, columns, half, w + half * apart, apart, 1, false, x, xm, x + half * xm, xm);
    solve_rows<UNIT>(n - half, columns, w + half * apart + half, apart, x + half * xm, xm);
    return;
  }
  for (long i = 0; i < n; ++i) {
    for (long at = 0; at < i; ++at) subtract_row(columns, w[i * apart + at], x + at * xm, x + i * xm);
    if (UNIT) continue;
    const C diagonal = w[i * apart + i];
    for (long j = 0; j < columns; ++j) x[i * xm + j] = x[i * xm + j] / diagonal;
  }
}

}  // namespace hloopt
