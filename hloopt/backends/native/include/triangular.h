// Triangular systems of equations as HLO and BLAS have them, put as ones of a lower triangle.
#pragma once
#include "matrices.h"

namespace hloopt {

// What one row's sum leaves of a right side: first - sum over k of a[k] * x[k].
template <class T>
inline double left_over(double first, long n, const T* a, long step, bool, const double* x) {
  double sum = 0;
  if (step == 1) {
#pragma omp simd reduction(+ : sum)
    for (long at = 0; at < n; ++at) sum += a[at] * x[at];
  } else {
    for (long at = 0; at < n; ++at) sum += a[at * step] * x[at];
  }
  return first - sum;
}

template <class T>
inline Pair left_over(Pair first, long n, const T* a, long step, bool conjugates, const Pair* x) {
  double re = 0, im = 0;
  const double sign = conjugates ? -1 : 1;
#pragma omp simd reduction(+ : re, im)
  for (long at = 0; at < n; ++at) {
    const double p = a[at * step].re, q = sign * a[at * step].im;
    re += p * x[at].re - q * x[at].im;
    im += p * x[at].im + q * x[at].re;
  }
  return {first.re - re, first.im - im};
}

// A few right sides, one after the other, by a triangle that is read where it lies.
template <class C, class T>
__attribute__((noinline, noclone)) void solve_vector(
    long n, const T* a, long am, long an, bool conjugates, bool is_unit, C* x) {
  const auto element = [=](long i, long j) {
    C value;
    carry(a[i * am + j * an], value);
    return conjugates ? conjugate(value) : value;
  };
  const bool by_columns = am == 1 || am == -1;
  for (long i = 0; i < n; ++i) {
    if (!by_columns) x[i] = left_over(x[i], i, a + i * am, an, conjugates, x);
    if (!is_unit) x[i] = x[i] / element(i, i);
    if (by_columns) {
      const C times = x[i];
      for (long j = i + 1; j < n; ++j) x[j] = x[j] - element(j, i) * times;
    }
  }
}

// x of a x = b for one matrix a [n, n], whose lower triangle counts, and b [n, columns].  Rows and columns
// of a are am and an apart, of b bm and bn, of x tm and tn.  `w` has room for a column.
template <class C, class T>
inline void solve_few(
    long n, long columns, const T* a, long am, long an, bool conjugates, bool is_unit, const T* b, long bm,
    long bn, T* to, long tm, long tn, C* w) {
  for (long j = 0; j < columns; ++j) {
    read_matrix(1, n, b + j * bn, 0, bm, false, w, 0);
    solve_vector(n, a, am, an, conjugates, is_unit, w);
    write_matrix(1, n, w, 0, false, to + j * tn, 0, tm);
  }
}

// The same with room for the triangle, rows `apart` elements apart, and behind it for all columns.
template <class C, class T>
inline void solve_many(
    long n, long columns, const T* a, long am, long an, bool conjugates, bool is_unit, const T* b, long bm,
    long bn, T* to, long tm, long tn, C* w, long apart) {
  C* const x = w + n * apart;
  read_matrix(n, n, a, am, an, conjugates, w, apart);
  if (is_unit)
    for (long i = 0; i < n; ++i) set(w[i * apart + i], 1);
  read_matrix(n, columns, b, bm, bn, false, x, columns);
  solve_rows<false>(n, columns, w, apart, x, columns);
  write_matrix(n, columns, x, columns, false, to, tm, tn);
}

}  // namespace hloopt
