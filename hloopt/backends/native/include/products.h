// Products of small matrices: c[m][n] = sum over k of l[m][k] * r[k][n], in order of k for each element.
#pragma once
#include <string.h>

// A term is multiplied and added in one step, rounded once, as BLAS does: all else here rounds op by op.
#if defined(__clang__)
#pragma clang fp contract(fast)
#elif defined(__GNUC__)
#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
#endif

namespace hloopt {

#if defined(__AVX512F__)
const int kVectorBytes = 64;
#elif defined(__AVX__)
const int kVectorBytes = 32;
#else
const int kVectorBytes = 16;
#endif

// Vectors are read and written through `At`, wherever they lie: copies by memcpy would keep them in memory.
template <class T, int BYTES>
struct VectorOf {
  typedef T type __attribute__((vector_size(BYTES)));
  typedef T At __attribute__((vector_size(BYTES), aligned(sizeof(T)), may_alias));
};

// ROWS x WIDE vectors of sums are kept in registers.
template <int ROWS, int WIDE, int BYTES, class T>
inline void product_tile(
    long k, const T* l, long lm, long lk, const T* r, long rk, T* c, long cm) {
  typedef typename VectorOf<T, BYTES>::type V;
  typedef typename VectorOf<T, BYTES>::At At;
  V sums[ROWS][WIDE];
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i)
    for (int j = 0; j < WIDE; ++j) sums[i][j] = V{};
  for (long at = 0; at < k; ++at) {
    const At* const from = (const At*)(r + at * rk);
#pragma GCC unroll 16
    for (int i = 0; i < ROWS; ++i) {
      const T left = l[i * lm + at * lk];
#pragma GCC unroll 4
      for (int j = 0; j < WIDE; ++j) sums[i][j] += left * (V)from[j];
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < ROWS; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < WIDE; ++j) ((At*)(c + i * cm))[j] = sums[i][j];
}

// As many rows at a time as have their sums in registers: the more there are, the less often r is read.
template <int ROWS, int WIDE, int BYTES, class T>
inline void product_rows(
    long m, long k, const T* l, long lm, long lk, const T* r, long rk, T* c, long cm) {
  long at = 0;
  for (; at + ROWS <= m; at += ROWS)
    product_tile<ROWS, WIDE, BYTES>(k, l + at * lm, lm, lk, r, rk, c + at * cm, cm);
  if constexpr (ROWS > 1)
    if (at < m)
      product_rows<ROWS / 2, WIDE, BYTES>(m - at, k, l + at * lm, lm, lk, r, rk, c + at * cm, cm);
}

template <int BYTES, class T>
inline void product_columns(
    long m, long n, long k, const T* l, long lm, long lk, const T* r, long rk, T* c, long cm) {
  const long lanes = BYTES / (long)sizeof(T);
  long at = 0;
  // Each sum waits for the one before: few rows need several vectors side by side.  So do loads, of which two
  // vectors need fewer for each product than one.
  if constexpr (BYTES == kVectorBytes) {
    if (m < 4)
      for (; at + 4 * lanes <= n; at += 4 * lanes)
        product_rows<2, 4, BYTES>(m, k, l, lm, lk, r + at, rk, c + at, cm);
    for (; at + 2 * lanes <= n; at += 2 * lanes)
      product_rows<BYTES == 64 ? 8 : 4, 2, BYTES>(m, k, l, lm, lk, r + at, rk, c + at, cm);
  }
  for (; at + lanes <= n; at += lanes)
    product_rows<8, 1, BYTES>(m, k, l, lm, lk, r + at, rk, c + at, cm);
  if constexpr (BYTES > sizeof(T))
    if (at < n) product_columns<BYTES / 2>(m, n - at, k, l, lm, lk, r + at, rk, c + at, cm);
}

// Rows of l are lm apart, its columns lk; rows of r and of c are rk and cm apart, their columns 1.
template <class T>
__attribute__((noinline)) void product(
    long m, long n, long k, const T* l, long lm, long lk, const T* r, long rk, T* c, long cm) {
  product_columns<kVectorBytes>(m, n, k, l, lm, lk, r, rk, c, cm);
}

// ---- large products: blocks that stay in the caches, copied into the order in which they are read ----------

// Sums of kTileRows x 2 vectors take most of the registers there are.
const int kTileRows = kVectorBytes == 64 ? 12 : 6;
// A strip of r of so many k stays in the first cache, a block of l in the second (bytes of f32: 24 K, 288 K).
const long kBlockDepth = 384, kBlockRows = 192, kBlockColumns = 512;

template <class T>
struct Blocks {
  static const long lanes = 2 * kVectorBytes / (long)sizeof(T);
  __attribute__((aligned(64))) T l[kBlockRows * kBlockDepth];
  __attribute__((aligned(64))) T r[kBlockColumns * kBlockDepth];
};

// rows x columns of c, at most kTileRows x `lanes`, from two packed strips.
template <class T>
inline void block_tile(long k, const T* l, const T* r, T* c, long cm, long rows, long columns, bool begins) {
  typedef typename VectorOf<T, kVectorBytes>::type V;
  typedef typename VectorOf<T, kVectorBytes>::At At;
  const long lanes = Blocks<T>::lanes;
  // Every index of the sums is a constant: else they would lie in memory while they are made.
  V low[kTileRows], high[kTileRows];
#pragma GCC unroll 12
  for (int i = 0; i < kTileRows; ++i) low[i] = high[i] = V{};
  for (long at = 0; at < k; ++at) {
    const V first = *(const At*)(r + at * lanes), second = *(const At*)(r + at * lanes + lanes / 2);
#pragma GCC unroll 12
    for (int i = 0; i < kTileRows; ++i) {
      const T left = l[at * kTileRows + i];
      low[i] += left * first;
      high[i] += left * second;
    }
  }
  const bool is_whole = columns == lanes && rows == kTileRows;
  T all[kTileRows * Blocks<T>::lanes];
  T* const to = is_whole ? c : all;
  const long apart = is_whole ? cm : lanes;
  if (is_whole && !begins) {
#pragma GCC unroll 12
    for (int i = 0; i < kTileRows; ++i) {
      low[i] += (V) * (const At*)(c + i * cm);
      high[i] += (V) * (const At*)(c + i * cm + lanes / 2);
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < kTileRows; ++i) {
    *(At*)(to + i * apart) = low[i];
    *(At*)(to + i * apart + lanes / 2) = high[i];
  }
  if (is_whole) return;
  for (long i = 0; i < rows; ++i)
    for (long j = 0; j < columns; ++j)
      c[i * cm + j] = begins ? all[i * lanes + j] : c[i * cm + j] + all[i * lanes + j];
}

inline long least(long a, long b) { return a < b ? a : b; }

// ---- a matrix times a vector: every element is read once -----------------------------------------------------

// ROWS sums along neighbouring elements of rows, each in two vectors and what is left over.
template <int ROWS, class T>
inline void row_sums(long k, const T* l, long lm, const T* x, T* y, bool begins) {
  typedef typename VectorOf<T, kVectorBytes>::type V;
  typedef typename VectorOf<T, kVectorBytes>::At At;
  const long lanes = kVectorBytes / (long)sizeof(T);
  V low[ROWS], high[ROWS];
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) low[i] = high[i] = V{};
  long at = 0;
  for (; at + 2 * lanes <= k; at += 2 * lanes) {
    const V first = *(const At*)(x + at), second = *(const At*)(x + at + lanes);
#pragma GCC unroll 4
    for (int i = 0; i < ROWS; ++i) {
      low[i] += (V) * (const At*)(l + i * lm + at) * first;
      high[i] += (V) * (const At*)(l + i * lm + at + lanes) * second;
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < ROWS; ++i) {
    const V both = low[i] + high[i];
    T sum = 0;
    for (long j = 0; j < lanes; ++j) sum += both[j];
    for (long j = at; j < k; ++j) sum += l[i * lm + j] * x[j];
    y[i] = begins ? sum : y[i] + sum;
  }
}

// y[m] = sum over k of l[m][k] * x[k]; y without gaps.
template <class T>
inline void matrix_vector(long m, long k, const T* l, long lm, long lk, const T* x, long xk, T* y) {
  const long depth = 1024;
  T some[depth];
  for (long k0 = 0; k0 < k; k0 += depth) {
    const long count = least(depth, k - k0);
    for (long at = 0; at < count; ++at) some[at] = x[(k0 + at) * xk];
    const T* from = l + k0 * lk;
    if (lk == 1) {
      long i = 0;
      for (; i + 4 <= m; i += 4) row_sums<4>(count, from + i * lm, lm, some, y + i, k0 == 0);
      for (; i < m; ++i) row_sums<1>(count, from + i * lm, lm, some, y + i, k0 == 0);
      continue;
    }
    for (long i0 = 0; i0 < m; i0 += depth) {
      const long rows = least(depth, m - i0);
      for (long i = 0; k0 == 0 && i < rows; ++i) y[i0 + i] = 0;
      for (long at = 0; at < count; ++at) {
        const T* const column = from + i0 * lm + at * lk;
        const T times = some[at];
        if (lm == 1)
          for (long i = 0; i < rows; ++i) y[i0 + i] += column[i] * times;
        else
          for (long i = 0; i < rows; ++i) y[i0 + i] += column[i * lm] * times;
      }
    }
  }
}

// ---- few columns: the left factor is read where it lies, once; packing it would take longer ------------------

// Of a left factor whose columns are neighbours down them, lines of the cache are read by each few rows anew: it has
// to stay in the second cache.
const long kFewElements = 1 << 18;

template <class T>
inline bool has_few_columns(long n, long k, long lm, long lk) {
  const long lanes = kVectorBytes / (long)sizeof(T);
  return lk == 1 ? n <= 3 * lanes : lm == 1 && n <= lanes && k * lk <= kFewElements;
}

// The bits of the sums are those of packed factors.

template <class T>
inline void few_columns(
    long m, long n, long k, const T* l, long lm, long lk, const T* r, long rk, long rn, T* c, long cm, T* packed) {
  const long some = 64;
  T sums[some * 3 * kVectorBytes / (long)sizeof(T)];
  for (long k0 = 0; k0 < k; k0 += kBlockDepth) {
    const long depth = least(kBlockDepth, k - k0);
    const T* from = r + k0 * rk;
    if (rn != 1) {
      for (long at = 0; at < depth; ++at)
        for (long j = 0; j < n; ++j) packed[at * n + j] = from[at * rk + j * rn];
      from = packed;
    }
    const long apart = rn == 1 ? rk : n;
    if (k0 == 0) {
      product(m, n, depth, l, lm, lk, from, apart, c, cm);
      continue;
    }
    for (long m0 = 0; m0 < m; m0 += some) {
      const long rows = least(some, m - m0);
      product(rows, n, depth, l + m0 * lm + k0 * lk, lm, lk, from, apart, sums, n);
      for (long i = 0; i < rows; ++i)
        for (long j = 0; j < n; ++j) c[(m0 + i) * cm + j] += sums[i * n + j];
    }
  }
}

// Rows and columns of l are lm and lk apart, those of r rk and rn; rows of c cm, its columns 1.  With `adds`
// sums are added to what is in c.
template <class T>
__attribute__((noinline)) void large_product(
    long m, long n, long k, const T* l, long lm, long lk, const T* r, long rk, long rn, T* c, long cm,
    bool adds = false) {
  if (n == 1 && !adds) {
    matrix_vector(m, k, l, lm, lk, r, rk, c);
    return;
  }
  static thread_local Blocks<T> blocks;
  if (has_few_columns<T>(n, k, lm, lk) && !adds) {
    few_columns(m, n, k, l, lm, lk, r, rk, rn, c, cm, blocks.r);
    return;
  }
  const long lanes = Blocks<T>::lanes;
  for (long n0 = 0; n0 < n; n0 += kBlockColumns) {
    const long columns = least(kBlockColumns, n - n0);
    for (long k0 = 0; k0 < k; k0 += kBlockDepth) {
      const long depth = least(kBlockDepth, k - k0);
      for (long j = 0; j < columns; j += lanes) {
        const long some = least(lanes, columns - j);
        T* to = blocks.r + j * depth;
        const T* from = r + k0 * rk + (n0 + j) * rn;
        if (some == lanes && rn == 1) {
          for (long at = 0; at < depth; ++at) memcpy(to + at * lanes, from + at * rk, lanes * sizeof(T));
        } else {
          if (some < lanes) memset(to, 0, depth * lanes * sizeof(T));
          for (long i = 0; i < some; ++i)
            for (long at = 0; at < depth; ++at) to[at * lanes + i] = from[at * rk + i * rn];
        }
      }
      for (long m0 = 0; m0 < m; m0 += kBlockRows) {
        const long rows = least(kBlockRows, m - m0);
        for (long i = 0; i < rows; i += kTileRows) {
          const long some = least(kTileRows, rows - i);
          T* to = blocks.l + i * depth;
          const T* from = l + (m0 + i) * lm + k0 * lk;
          if (some < kTileRows) memset(to, 0, depth * kTileRows * sizeof(T));
          // Along memory: columns some thousand bytes apart would share a few sets of the first cache.
          if (lm == 1 && some == kTileRows)
            for (long at = 0; at < depth; ++at) memcpy(to + at * kTileRows, from + at * lk, kTileRows * sizeof(T));
          else
            for (long j = 0; j < some; ++j)
              for (long at = 0; at < depth; ++at) to[at * kTileRows + j] = from[j * lm + at * lk];
        }
        for (long j = 0; j < columns; j += lanes)
          for (long i = 0; i < rows; i += kTileRows)
            block_tile<T>(
                depth, blocks.l + i * depth, blocks.r + j * depth, c + (m0 + i) * cm + n0 + j, cm,
                least(kTileRows, rows - i), least(lanes, columns - j), k0 == 0 && !adds);
      }
    }
  }
}

}  // namespace hloopt

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC pop_options
#endif
