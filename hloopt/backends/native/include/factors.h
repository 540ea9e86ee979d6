// Factorisations of one matrix: Cholesky's, and L U with partial pivoting.
#pragma once
#include "matrices.h"

namespace hloopt {

// ---- U with Uᴴ U = A --------------------------------------------------------------------------------------

// Rows p to q of U, where rows before p have been subtracted.  Returns 0, or the number, from 1 on, of the
// first row whose pivot is not positive.
template <class C>
__attribute__((noinline, noclone)) long cholesky_rows(C* w, long apart, long p, long q, long n) {
  if (q - p > 16) {
    const long mid = p + (q - p) / 2;
    if (const long bad = cholesky_rows(w, apart, p, mid, n)) return bad;
    for (long r = mid; r < q; r += kPart) {
      const C* const above = w + p * apart + r;
      subtract_product(
          least(kPart, q - r), n - r, mid - p, above, 1, apart, true, above, apart, w + r * apart + r, apart);
    }
    return cholesky_rows(w, apart, mid, q, n);
  }
  for (long j = p; j < q; ++j) {
    C* const row = w + j * apart;
    const double pivot = real(row[j]);
    if (!(pivot > 0)) return j + 1;
    const double root = sqrt(pivot);
    set(row[j], root);
    for (long i = j + 1; i < n; ++i) row[i] = row[i] / root;
    for (long i = j + 1; i < q; ++i)
      subtract_row(n - i, conjugate(row[i]), row + i, w + i * apart + i);
  }
  return 0;
}

// Rows 0 to `known` of U, whose pivots are positive; what is below stays.
template <class C>
inline void first_rows(C* w, long apart, long known, long n) {
  for (long j = 0; j < known; ++j) {
    C* const row = w + j * apart;
    for (long k = 0; k < j; ++k) {
      const C* const above = w + k * apart;
      subtract_row(n - j, conjugate(above[j]), above + j, row + j);
    }
    const double root = sqrt(real(row[j]));
    set(row[j], root);
    for (long i = j + 1; i < n; ++i) row[i] = row[i] / root;
  }
}

// The factor of a [n, n] over its lower or upper triangle.  With `keeps` the other triangle stays as it
// was, and of a matrix that is not positive definite all that is no factor; else there are zeros, and NaN
// everywhere. `w` has room for n rows, `apart` elements apart.  Returns LAPACK's info.
template <class C, class T>
inline int cholesky(
    long n, const T* a, long am, long an, bool lower, bool keeps, T* to, long tm, long tn, C* w, long apart) {
  // U of a lower triangle is Lᴴ.
  const long fm = lower ? an : am, fn = lower ? am : an;
  read_matrix(n, n, a, fm, fn, lower, w, apart);
  const long bad = cholesky_rows(w, apart, 0, n, n);
  if (keeps) {
    // Products of whole blocks have been written over the other triangle.
    if (bad || n > 16) {
      for (long i = 0; i < n; ++i)
        read_matrix(1, bad > 0 && i >= bad - 1 ? n : i, a + i * fm, 0, fn, lower, w + i * apart, 0);
    }
    if (bad) {
      read_matrix(bad - 1, n, a, fm, fn, lower, w, apart);
      first_rows(w, apart, bad - 1, n);
    }
  } else {
    for (long i = 0; i < n; ++i)
      for (long j = 0; j < (bad ? n : i); ++j) set(w[i * apart + j], bad ? NAN : 0.0);
  }
  write_matrix(n, n, w, apart, lower, to, lower ? tn : tm, lower ? tm : tn);
  return (int)bad;
}

// ---- P A = L U --------------------------------------------------------------------------------------------

// Columns p to q of L and U, where columns before p have been subtracted; rows are swapped whole.
template <class C>
__attribute__((noinline, noclone)) void lu_columns(
    C* w, long apart, long rows, long columns, long p, long q, int* pivots, long step, int* info) {
  if (q - p > 16) {
    const long mid = p + (q - p) / 2;
    lu_columns(w, apart, rows, columns, p, mid, pivots, step, info);
    C* const right = w + p * apart + mid;
    solve_rows<true>(mid - p, q - mid, w + p * apart + p, apart, right, apart);
    subtract_product(
        rows - mid, q - mid, mid - p, w + mid * apart + p, apart, 1, false, right, apart,
        w + mid * apart + mid,
        apart);
    lu_columns(w, apart, rows, columns, mid, q, pivots, step, info);
    return;
  }
  for (long j = p; j < q; ++j) {
    // The first of the largest; a NaN never wins.
    long chosen = j;
    double most = -1;
    for (long i = j; i < rows; ++i) {
      const double size = weight(w[i * apart + j]);
      if (size > most) most = size, chosen = i;
    }
    pivots[j * step] = (int)chosen + 1;
    C* const row = w + j * apart;
    if (chosen != j)
      for (long i = 0; i < columns; ++i) {
        const C kept = row[i];
        row[i] = w[chosen * apart + i];
        w[chosen * apart + i] = kept;
      }
    const C pivot = row[j];
    const bool is_zero = real(pivot) == 0 && imaginary(pivot) == 0;
    if (is_zero && *info == 0) *info = (int)j + 1;
    for (long i = j + 1; i < rows; ++i) {
      C* const other = w + i * apart;
      if (!is_zero) other[j] = other[j] / pivot;
      subtract_row(q - j - 1, other[j], row + j + 1, other + j + 1);
    }
  }
}

// L (its diagonal of ones is not stored) and U of a [m, n]; pivots from 1 on, as many as the shorter side,
// `step` apart.  `w` has room for m rows.  Returns the number, from 1 on, of the first zero pivot, or 0.
template <class C, class T>
inline int lu(
    long m, long n, const T* a, long am, long an, T* to, long tm, long tn, int* pivots, long step, C* w,
    long apart) {
  int info = 0;
  const long steps = least(m, n);
  read_matrix(m, n, a, am, an, false, w, apart);
  lu_columns(w, apart, m, n, 0, steps, pivots, step, &info);
  solve_rows<true>(steps, n - steps, w, apart, w + steps, apart);
  write_matrix(m, n, w, apart, false, to, tm, tn);
  return info;
}

}  // namespace hloopt
