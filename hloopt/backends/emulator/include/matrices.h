// What warps do with matrices, and asynchronous copies, by their documented semantics (PTX ISA).
#pragma once
#include "launch.h"

namespace hloopt {

// ---------------------------------------------------------------- asynchronous copies

template <int Bytes, class T>
struct PlainTarget {
  char* bytes;
  explicit PlainTarget(T* to) : bytes((char*)to) {}
  void begin() const {}
  void land() const {}
};
template <int Bytes, class T>
inline PlainTarget<Bytes, T> copy_target(T* to) {
  return PlainTarget<Bytes, T>(to);
}
template <class T>
inline const char* copied_from(const T* from, int, int) {
  return (const char*)from;
}

#ifdef HLOOPT_CHECK
// `size` bytes at an element, which must be aligned to them and lie in its array.
template <class A>
inline int elements_of(const SharedPointer<A>& at, int size) {
  const auto& first = at.element;
  constexpr int kBytes = sizeof(typename A::Value), kEvery = sizeof(A::elements) / kBytes;
  if (first.number * kBytes % size)
    fail(first.line, "takes %d bytes at element %lld of the shared array '%s', which is not aligned to them",
         size, (long long)first.number, first.name);
  if (first.number + size / kBytes > kEvery)
    fail(first.line, "takes %d bytes at element %lld of the shared array '%s', which has %d elements", size,
         (long long)first.number, first.name, kEvery);
  return size / kBytes;
}

// Several elements at once.
template <class A, class V>
inline void store_whole(const SharedPointer<A>& to, const V& value) {
  const int count = elements_of(to, sizeof value);
  for (int i = 0; i < count; i++) {
    auto element = to.element;
    element.number += i;
    element = value.lane[i];
  }
}

template <int Bytes, class A>
struct SharedTarget {
  SharedPointer<A> to;
  int count;
  char* bytes;
  explicit SharedTarget(const SharedPointer<A>& to)
      : to(to), count(elements_of(to, Bytes)), bytes((char*)&to.element.array->elements[to.element.number]) {}
  void write(uint64_t* before) const {
    for (int i = 0; i < count; i++) {
      auto element = to.element;
      element.number += i;
      Cell& cell = element.array->cells[element.number];
      if (before) cell.writer = *before;
      element.check(Access::kWrite, nullptr);
    }
  }
  // Nobody may touch the bytes from here on until they land.
  void begin() const {
    write(nullptr);
    for (int i = 0; i < count; i++) to.element.array->cells[to.element.number + i].writer = kInFlight;
  }
  // As if the thread that waits wrote them now.
  void land() const {
    uint64_t none = 0;
    write(&none);
  }
};
template <int Bytes, class A>
inline SharedTarget<Bytes, A> copy_target(const SharedPointer<A>& to) {
  return SharedTarget<Bytes, A>(to);
}
template <class T>
inline const char* copied_from(const Checked<T>& from, int size, int line) {
  check_access(from.region, from.address, (unsigned)size, (unsigned)size, Access::kRead, nullptr, line);
  return from.address;
}
#endif

struct PendingCopy {
  PendingCopy* next = nullptr;
  int group, line;
  PendingCopy(int group, int line) : group(group), line(line) {}
  virtual void make() const = 0;
  virtual ~PendingCopy() {}
};
template <int Bytes, class Target, class From>
struct Pending final : PendingCopy {
  Target target;
  From from;
  bool is_read;
  Pending(int group, int line, const Target& target, const From& from, bool is_read)
      : PendingCopy(group, line), target(target), from(from), is_read(is_read) {}
  void make() const override {
    target.land();
    if (is_read)
      memcpy(target.bytes, copied_from(from, Bytes, line), Bytes);
    else
      memset(target.bytes, 0, Bytes);
  }
};

// The asynchronous copies of one thread.  A copy is made when the thread waits for its group, never before;
// until then bits that are NaN in every float type stand where it goes.
class Copies {
 public:
  template <int Bytes, class To, class From>
  void begin(const To& to, const From& from, bool is_read, HLOOPT_SITE) {
    const auto target = copy_target<Bytes>(to);
    target.begin();
    memset(target.bytes, 0xff, Bytes);
    if (is_read) copied_from(from, Bytes, site);
    *end_ = new Pending<Bytes, std::decay_t<decltype(target)>, From>(groups_, site, target, from, is_read);
    end_ = &(*end_)->next;
  }
  void commit() { groups_++; }
  // Make the copies of all groups but the last so many; they were begun in the order of their groups.
  void wait(int groups) {
    while (first_ && first_->group < groups_ - groups) {
      PendingCopy* const done = first_;
      done->make();
      first_ = done->next;
      if (!first_) end_ = &first_;
      delete done;
    }
  }
  Copies() = default;
  Copies(const Copies&) = delete;
  ~Copies() {
#ifdef HLOOPT_CHECK
    if (first_) fail(first_->line, "begins an asynchronous copy that its thread never waits for");
#endif
    while (PendingCopy* const left = first_) first_ = left->next, delete left;
  }

 private:
  PendingCopy *first_ = nullptr, **end_ = &first_;
  int groups_ = 0;
};

// ---------------------------------------------------------------- matrices from shared memory

inline void read_row(const void* from, unsigned char* row, int) { memcpy(row, from, 16); }
#ifdef HLOOPT_CHECK
template <class A>
inline void read_row(const SharedPointer<A>& from, unsigned char* row, int) {
  const int count = elements_of(from, 16);
  for (int i = 0; i < count; i++) {
    auto element = from.element;
    element.number += i;
    const typename A::Value value = element;
    memcpy(row + i * (int)sizeof value, &value, sizeof value);
  }
}
#endif

struct LoadLane : WarpTask {
  alignas(16) unsigned char row[16];
  unsigned loaded[4];
};

// Lane 8 i + r gives the address of row r of matrix i, 8 rows of 16 bytes each; lane l gets word l % 4 of row
// l / 4 of each matrix, or of its transpose, whose elements are 16 bits wide.
template <int Count, bool Transposed>
inline void load_lanes(WarpTask* const* tasks) {
  for (int lane = 0; lane < kWarpSize; lane++) {
    const int row = lane >> 2, at = lane & 3;
    for (int matrix = 0; matrix < Count; matrix++) {
      unsigned char* const to = (unsigned char*)&((LoadLane*)tasks[lane])->loaded[matrix];
      if constexpr (Transposed) {
        for (int half = 0; half < 2; half++)
          memcpy(to + 2 * half, ((LoadLane*)tasks[8 * matrix + 2 * at + half])->row + 2 * row, 2);
      } else {
        memcpy(to, ((LoadLane*)tasks[8 * matrix + row])->row + 4 * at, 4);
      }
    }
  }
}

template <bool Transposed, class From, class... Registers>
inline void load_matrices(int site, const From& from, Registers&... registers) {
  constexpr int kCount = sizeof...(Registers);
  LoadLane mine;
  mine.run = load_lanes<kCount, Transposed>;
  if (lane() < 8 * kCount) read_row(from, mine.row, site);
  work_as_warp(mine, site);
  int number = 0;
  ((registers = mine.loaded[number++]), ...);
}

// ---------------------------------------------------------------- products of matrices

// Floats are added up as the matrix units of most devices do (microsoft/MMA-Sim, arXiv 2511.10909): exact
// products, so many at once as `kAtOnce`, and the sum so far are cut to 24 bits below the largest exponent among
// them, added exactly, and rounded towards zero.
struct Term {
  double value;
  int exponent;  // of what is not normalised: as the operands' exponents say
};

inline Term operator*(Term a, Term b) { return {a.value * b.value, a.exponent + b.exponent}; }

inline float add_terms(const Term* terms, int count, float total) {
  constexpr int kKept = 24;
  double plain = (double)total;
  int largest = total != 0 ? ilogb(total) < -126 ? -126 : ilogb(total) : -100000;
  bool is_finite = std::isfinite(total);
  for (int i = 0; i < count; i++) {
    plain += terms[i].value;
    is_finite = is_finite && std::isfinite(terms[i].value);
    if (terms[i].value != 0 && terms[i].exponent > largest) largest = terms[i].exponent;
  }
  if (!is_finite) return plain == plain ? (float)plain : __uint_as_float(0x7fffffffu);
  if (largest == -100000) return 0.0f;
  const double scale = ldexp(1.0, kKept - largest);  // a normal number for every such exponent
  int64_t sum = (int64_t)((double)total * scale);
  for (int i = 0; i < count; i++) sum += (int64_t)(terms[i].value * scale);
  const double exact = ldexp((double)sum, largest - kKept);
  const float rounded = (float)exact;
  return std::isfinite(rounded) && fabs((double)rounded) > fabs(exact) ? nextafterf(rounded, 0.0f) : rounded;
}

inline Term with_exponent(double value, int least) {
  if (value == 0 || !std::isfinite(value)) return {value, least};
  const int found = ilogb(value);
  return {value, found < least ? least : found};
}

template <int Fraction, int Least>
struct HalfElements {
  using Register = unsigned;
  using Sum = float;
  static constexpr int kEach = 2;
  static Term get(unsigned word, int at) {
    const unsigned bits = word >> (16 * at) & 0xffffu, sign = bits >> 15;
    const int high = (int)((bits & 0x7fffu) >> Fraction), most = (1 << (15 - Fraction)) - 1;
    const double low = (double)(bits & ((1u << Fraction) - 1));
    double size = ldexp(low + (high ? 1 << Fraction : 0), Least - Fraction + (high ? high - 1 : 0));
    if (high == most) size = low != 0 ? NAN : INFINITY;
    return with_exponent(sign ? -size : size, Least);
  }
};
using F16Elements = HalfElements<10, -14>;
using Bf16Elements = HalfElements<7, -126>;
struct Tf32Elements {  // the lower 13 bits are ignored
  using Register = unsigned;
  using Sum = float;
  static constexpr int kEach = 1;
  static Term get(unsigned word, int) {
    return with_exponent((double)__uint_as_float(word & 0xffffe000u), -126);
  }
};
struct S8Elements {
  using Register = unsigned;
  using Sum = int;
  static constexpr int kEach = 4;
  static int get(unsigned word, int at) { return (signed char)(word >> (8 * at)); }
};
struct F64Elements {
  using Register = double;
  using Sum = double;
  static constexpr int kEach = 1;
  static double get(double word, int) { return word; }
};

template <class E, int M, int K, int AtOnce>
struct MatrixStep {
  using Register = typename E::Register;
  using Sum = typename E::Sum;
  static constexpr int kLeft = M * K / kWarpSize / E::kEach, kRight = 8 * K / kWarpSize / E::kEach;
  static constexpr int kSums = M * 8 / kWarpSize;

  struct Lane : WarpTask {
    Register left[kLeft], right[kRight];
    Sum sums[kSums];
  };

  // Lane 4 g + t: rows g and g + 8 of the left operand and column g of the right one, elements from E t on of
  // every 4 E along the contracted axis; of the sums the same rows, columns 2 t and 2 t + 1.
  using Factor = decltype(E::get(Register(), 0));
  static Factor left(WarpTask* const* tasks, int row, int k) {
    const int number = k / (4 * E::kEach) * (M / 8) + (row >> 3), lane = (row & 7) * 4 + k / E::kEach % 4;
    return E::get(((Lane*)tasks[lane])->left[number], k % E::kEach);
  }
  static Factor right(WarpTask* const* tasks, int k, int column) {
    const int number = k / (4 * E::kEach), lane = column * 4 + k / E::kEach % 4;
    return E::get(((Lane*)tasks[lane])->right[number], k % E::kEach);
  }
  static Sum sum(const Factor* row, const Factor* column, Sum total) {
    if constexpr (sizeof(Sum) == 8) {
      for (int k = 0; k < K; k++) total = fma(row[k], column[k], total);
    } else if constexpr (E::kEach == 4) {
      unsigned wrapped = (unsigned)total;
      for (int k = 0; k < K; k++) wrapped += (unsigned)(row[k] * column[k]);
      total = (int)wrapped;
    } else {
      for (int first = 0; first < K; first += AtOnce) {
        Term terms[AtOnce];
        for (int i = 0; i < AtOnce; i++) terms[i] = row[first + i] * column[first + i];
        total = add_terms(terms, AtOnce, total);
      }
    }
    return total;
  }
  static void run(WarpTask* const* tasks) {
    Factor rows[M][K], columns[8][K];
    for (int k = 0; k < K; k++) {
      for (int row = 0; row < M; row++) rows[row][k] = left(tasks, row, k);
      for (int column = 0; column < 8; column++) columns[column][k] = right(tasks, k, column);
    }
    for (int lane = 0; lane < kWarpSize; lane++)
      for (int i = 0; i < kSums; i++) {
        Sum& own = ((Lane*)tasks[lane])->sums[i];
        own = sum(rows[lane / 4 + 8 * (i / 2)], columns[lane % 4 * 2 + i % 2], own);
      }
  }
};
using m16n8k16_f16 = MatrixStep<F16Elements, 16, 16, 8>;
using m16n8k16_bf16 = MatrixStep<Bf16Elements, 16, 16, 8>;
using m16n8k8_f16 = MatrixStep<F16Elements, 16, 8, 8>;
using m16n8k8_tf32 = MatrixStep<Tf32Elements, 16, 8, 4>;
using m16n8k32_s8 = MatrixStep<S8Elements, 16, 32, 32>;
using m8n8k4_f64 = MatrixStep<F64Elements, 8, 4, 1>;

#define HLOOPT_MATRIX_STEPS(WORD) \
  WORD MatrixStep<F16Elements, 16, 16, 8>; \
  WORD MatrixStep<Bf16Elements, 16, 16, 8>; \
  WORD MatrixStep<F16Elements, 16, 8, 8>; \
  WORD MatrixStep<Tf32Elements, 16, 8, 4>; \
  WORD MatrixStep<S8Elements, 16, 32, 32>; \
  WORD MatrixStep<F64Elements, 8, 4, 1>;
HLOOPT_MATRIX_STEPS(extern template struct)  // in runtime.cpp, which is compiled once and to be fast

// Registers of the sums, of the left operand, of the right one.
template <class Step, class... R>
inline void multiply_matrices(int site, R&&... registers) {
  static_assert(sizeof...(R) == Step::kSums + Step::kLeft + Step::kRight, "as many registers as the step has");
  typename Step::Lane mine;
  mine.run = Step::run;
  int number = 0;
  const auto take = [&](auto value) {
    const int at = number++;
    if (at < Step::kSums) mine.sums[at] = (typename Step::Sum)value;
    else if (at < Step::kSums + Step::kLeft) mine.left[at - Step::kSums] = (typename Step::Register)value;
    else mine.right[at - Step::kSums - Step::kLeft] = (typename Step::Register)value;
  };
  (take(registers), ...);
  work_as_warp(mine, site);
  number = 0;
  const auto give = [&](auto& to) {
    const int at = number++;
    if constexpr (!std::is_const_v<std::remove_reference_t<decltype(to)>>)
      if (at < Step::kSums) to = (std::remove_reference_t<decltype(to)>)mine.sums[at];
  };
  (give(registers), ...);
}

}  // namespace hloopt
