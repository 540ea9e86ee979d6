// Q R by Householder reflections H = 1 - tau v vᴴ, whose v begins with a 1 that is not stored, as LAPACK
// has them; a block of reflections is 1 - V T Vᴴ (Schreiber and Van Loan, 1989).
#pragma once
#include "matrices.h"

namespace hloopt {

const long kReflections = 32;

// The length of n numbers that lie `apart` from each other, without overflow.
template <class C>
inline double length_of(long n, const C* x, long apart) {
  double sum = 0, most = 0;
  for (long i = 0; i < n; ++i) {
    const C one = x[i * apart];
    sum += real(one) * real(one) + imaginary(one) * imaginary(one);
    most = most > weight(one) ? most : weight(one);
  }
  if (most == 0 || (sum > 1e-280 && sum < 1e300)) return sqrt(sum);
  if (!(most < INFINITY)) return most * 0 + sum;
  sum = 0;
  for (long i = 0; i < n; ++i) {
    const double re = real(x[i * apart]) / most, im = imaginary(x[i * apart]) / most;
    sum += re * re + im * im;
  }
  return most * sqrt(sum);
}

inline void set_parts(double& to, double re, double) { to = re; }
inline void set_parts(Pair& to, double re, double im) { to = {re, im}; }

// LAPACK's larfg: x becomes (beta, v without its 1), and Hᴴ x was (beta, 0, ...).  Returns tau.
template <class C>
inline C reflection(long n, C* x, long apart) {
  C tau;
  set(tau, 0);
  const double below = n > 1 ? length_of(n - 1, x + apart, apart) : 0;
  const C first = *x;
  if (below == 0 && imaginary(first) == 0) return tau;
  const double beta = -copysign(hypot(hypot(real(first), imaginary(first)), below), real(first));
  set_parts(tau, (beta - real(first)) / beta, -imaginary(first) / beta);
  C apex;
  set(apex, beta);
  const C divisor = first - apex;
  for (long i = 1; i < n; ++i) x[i * apart] = x[i * apart] / divisor;
  *x = apex;
  return tau;
}

// Columns p to q, each reflected by those before; `some` has room for a row.
template <class C>
__attribute__((noinline, noclone)) void reflect_columns(C* w, long apart, long rows, long p, long q, C* taus, C* some) {
  for (long j = p; j < q && j < rows; ++j) {
    C* const column = w + j * apart + j;
    taus[j] = reflection(rows - j, column, apart);
    const long rest = q - j - 1;
    if (!rest || (real(taus[j]) == 0 && imaginary(taus[j]) == 0)) continue;
    const C kept = *column;
    set(*column, 1);
    for (long c = 0; c < rest; ++c) set(some[c], 0);
    for (long i = 0; i < rows - j; ++i)
      subtract_row(rest, conjugate(column[i * apart]), column + i * apart + 1, some);
    for (long c = 0; c < rest; ++c) some[c] = -(conjugate(taus[j]) * some[c]);
    for (long i = 0; i < rows - j; ++i) subtract_row(rest, column[i * apart], some, column + i * apart + 1);
    *column = kept;
  }
}

// Room for a block of reflections of `rows`, and for what they do to a matrix of `columns`.
template <class C>
struct Reflections {
  C *v, *t, *made, *turned;
  Reflections(C* w, long rows, long columns)
      : v(w), t(v + rows * kReflections), made(t + kReflections * kReflections),
        turned(made + kReflections * columns) {}
};

// V of `count` reflections, whose vectors are columns of x, and its T; x[0] is where the first one's 1
// would be.
template <class C, class T>
__attribute__((noinline, noclone)) void gather_reflections(
    long rows, long count, const T* x, long xm, long xn, const C* taus, const Reflections<C>& to) {
  C *const v = to.v, *const t = to.t, *const gram = to.made;
  read_matrix(rows, count, x, xm, xn, false, v, count);
  for (long i = 0; i < count && i < rows; ++i) {
    for (long j = i; j < count; ++j) set(v[i * count + j], 0);
    set(v[i * count + i], 1);
  }
  for (long i = 0; i < count * count; ++i) {
    set(gram[i], 0);
    set(t[i], 0);
  }
  subtract_product(count, count, rows, v, 1, count, true, v, count, gram, count);
  for (long j = 0; j < count; ++j) {
    for (long i = 0; i < j; ++i) {
      C sum;
      set(sum, 0);
      for (long k = i; k < j; ++k) sum = sum + t[i * count + k] * gram[k * count + j];
      t[i * count + j] = sum * taus[j];
    }
    t[j * count + j] = taus[j];
  }
}

// c [rows, columns] becomes (1 - V T Vᴴ) c, or with `adjoint` (1 - V Tᴴ Vᴴ) c.
template <class C>
__attribute__((noinline, noclone)) void apply_reflections(
    long rows, long columns, long count, const Reflections<C>& by, bool adjoint, C* c, long cm) {
  for (long i = 0; i < count * columns; ++i) {
    set(by.made[i], 0);
    set(by.turned[i], 0);
  }
  subtract_product(count, columns, rows, by.v, 1, count, true, c, cm, by.made, columns);
  subtract_product(
      count, columns, count, by.t, adjoint ? 1 : count, adjoint ? count : 1, adjoint, by.made, columns,
      by.turned,
      columns);
  subtract_product(rows, columns, count, by.v, count, 1, false, by.turned, columns, c, cm);
}

// LAPACK's geqrf of a [m, n]: R on and above the diagonal, vectors below.  taus: `w` begins with them; then
// come m rows, `apart` elements apart, a row, and room for a block.
template <class C, class T>
inline void qr(
    long m, long n, const T* a, long am, long an, T* to, long tm, long tn, T* factors, long step, C* w,
    long apart) {
  const long steps = least(m, n);
  C *const taus = w, *const x = taus + steps, *const some = x + m * apart;
  const Reflections<C> block(some + n, m, n);
  read_matrix(m, n, a, am, an, false, x, apart);
  for (long p = 0; p < steps; p += kReflections) {
    const long q = least(p + kReflections, steps);
    reflect_columns(x, apart, m, p, q, taus, some);
    if (q == n) break;
    const C* const at = x + p * apart + p;
    gather_reflections(m - p, q - p, at, apart, 1, taus + p, block);
    apply_reflections(m - p, n - q, q - p, block, true, x + p * apart + q, apart);
  }
  write_matrix(m, n, x, apart, false, to, tm, tn);
  write_matrix(1, steps, taus, 0, false, factors, 0, step);
}

// Q c or Qᴴ c, for Q of `steps` reflections in the columns of x; c [rows, columns] in place.
template <class C, class T>
inline void turn(
    long rows, long columns, long steps, const T* x, long xm, long xn, const C* taus, bool adjoint,
    bool begins,
    C* c, long apart, const Reflections<C>& block) {
  const long blocks = (steps + kReflections - 1) / kReflections;
  for (long number = 0; number < blocks; ++number) {
    const long p = (adjoint ? number : blocks - 1 - number) * kReflections;
    const long count = least(kReflections, steps - p);
    gather_reflections(rows - p, count, x + p * (xm + xn), xm, xn, taus + p, block);
    // Of a matrix that is still 1 in its first columns these stay.
    const long from = begins ? p : 0;
    apply_reflections(rows - p, columns - from, count, block, adjoint, c + p * apart + from, apart);
  }
}

// LAPACK's orgqr and ungqr: the first n columns of Q, of the vectors in x [m, n].
template <class C, class T>
inline void householder_product(
    long m, long n, long steps, const T* x, long xm, long xn, const T* given, long step, T* to, long tm,
    long tn,
    C* w, long apart) {
  C *const taus = w, *const q = taus + steps;
  const Reflections<C> block(q + m * apart, m, n);
  read_matrix(1, steps, given, 0, step, false, taus, 0);
  for (long i = 0; i < m; ++i)
    for (long j = 0; j < n; ++j) set(q[i * apart + j], i == j);
  turn(m, n, steps, x, xm, xn, taus, false, true, q, apart, block);
  write_matrix(m, n, q, apart, false, to, tm, tn);
}

}  // namespace hloopt
