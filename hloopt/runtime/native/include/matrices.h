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

// to[i][j] = from[i][j] for m rows and n columns; where neighbours of one lie across the other, tile by tile.
template <class F, class T>
__attribute__((noinline)) void copy_matrix(
    long m, long n, const F* from, long fm, long fn, bool conjugates, T* to, long tm, long tn) {
  const long tile = fn == 1 && tn == 1 ? n : 16;
  for (long i0 = 0; i0 < m; i0 += 16)
    for (long j0 = 0; j0 < n; j0 += tile) {
      const long last = least(n, j0 + tile);
      for (long i = i0; i < least(m, i0 + 16); ++i) {
        const F* const row = from + i * fm;
        T* const out = to + i * tm;
        if (fn == 1 && tn == 1)
          for (long j = j0; j < last; ++j) carry(row[j], out[j]);
        else
          for (long j = j0; j < last; ++j) carry(row[j * fn], out[j * tn]);
      }
    }
  if (!conjugates) return;
  if constexpr (sizeof(T) == 2 * sizeof(*(double*)0) || sizeof(F) == sizeof(Pair)) conjugate_all(m, n, to, tm, tn);
}

}  // namespace hloopt
