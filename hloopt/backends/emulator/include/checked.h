// Pointers and shared arrays that check every access; the driver rewrites a program's declarations to them.
#pragma once
#include <type_traits>

#include "atomics.h"

namespace hloopt {

// An element that may be read or written.
template <class T>
struct Element {
  const Region* region;
  char* address;
  int line;

  operator T() const {
    check_access(region, address, sizeof(T), 1, Access::kRead, nullptr, line);
    T value;
    memcpy(&value, address, sizeof value);
    return value;
  }
  T operator=(const T& value) const {
    check_access(region, address, sizeof(T), 1, Access::kWrite, &value, line);
    memcpy(address, &value, sizeof value);
    return value;
  }
  T operator=(const Element& other) const { return *this = (T)other; }
#define HLOOPT_COMPOUND(OPERATOR) \
  template <class V> T operator OPERATOR##=(const V& v) const { return *this = (T)((T)*this OPERATOR v); }
  HLOOPT_COMPOUND(+)
  HLOOPT_COMPOUND(-)
  HLOOPT_COMPOUND(*)
  HLOOPT_COMPOUND(/)
  HLOOPT_COMPOUND(%)
  HLOOPT_COMPOUND(&)
  HLOOPT_COMPOUND(|)
  HLOOPT_COMPOUND(^)
  HLOOPT_COMPOUND(<<)
  HLOOPT_COMPOUND(>>)
  T operator++() const { return *this += 1; }
  T operator--() const { return *this -= 1; }
  T operator++(int) const { const T old = *this; *this += 1; return old; }
  T operator--(int) const { const T old = *this; *this -= 1; return old; }
};

template <class T> struct Checked;

template <class T>
struct Checked<const T> {
  const Region* region;
  char* address;

  char* at(int64_t number) const { return (char*)((intptr_t)address + number * (intptr_t)sizeof(T)); }
  T load(int64_t number, int line = __builtin_LINE()) const {
    return Element<T>{region, at(number), line};
  }
  T operator[](int64_t number) const { return load(number, 0); }
  T operator*() const { return load(0, 0); }
  Checked operator+(int64_t by) const { return {region, at(by)}; }
  Checked operator-(int64_t by) const { return {region, at(-by)}; }
  Checked& operator+=(int64_t by) { return *this = *this + by; }
  Checked& operator-=(int64_t by) { return *this = *this - by; }
  Checked& operator++() { return *this += 1; }
  int64_t operator-(const Checked& other) const { return (address - other.address) / (int64_t)sizeof(T); }
};

// One that may be written is one that may be read, as T* is a const T*.
template <class T>
struct Checked : Checked<const T> {
  using Base = Checked<const T>;
  Checked(const Region* region, char* address) : Base{region, address} {}

  Element<T> slot(int64_t number, int line = __builtin_LINE()) const {
    return {this->region, this->at(number), line};
  }
  // A member of an element that is a struct.
  template <class F>
  auto member(int64_t number, F select, int line = __builtin_LINE()) const {
    T* const element = (T*)this->at(number);
    auto& chosen = select(*element);
    return Element<std::remove_reference_t<decltype(chosen)>>{this->region, (char*)&chosen, line};
  }
  Element<T> operator[](int64_t number) const { return slot(number, 0); }
  Element<T> operator*() const { return slot(0, 0); }
  Checked operator+(int64_t by) const { return {this->region, this->at(by)}; }
  Checked operator-(int64_t by) const { return {this->region, this->at(-by)}; }
  Checked& operator+=(int64_t by) { return *this = *this + by; }
  Checked& operator-=(int64_t by) { return *this = *this - by; }
  Checked& operator++() { return *this += 1; }
};

// Several elements at once, at an address that must be a multiple of their size.
template <class V, class T>
inline V load_whole(const Checked<const T>& from, int line) {
  check_access(from.region, from.address, sizeof(V), sizeof(V), Access::kRead, nullptr, line);
  V value;
  memcpy(&value, from.address, sizeof value);
  return value;
}
template <class V, class T>
inline void store_whole(const Checked<T>& to, const V& value, int line) {
  check_access(to.region, to.address, sizeof(V), sizeof(V), Access::kWrite, &value, line);
  memcpy(to.address, &value, sizeof value);
}

template <int D>
struct Indices {
  int64_t number[D];
};

// `&s[i]` of a shared array.
template <class A>
struct SharedPointer {
  typename A::Element element;
  typename A::Value* atomically() const {
    element.check(Access::kAtomic, nullptr);
    return &element.array->elements[element.number];
  }
};

// A `__shared__ T name[A][B]`; what is known of an element belongs to one run of one block.
template <class T, int... Sizes>
struct SharedArray {
  using Value = T;
  static constexpr int kDimensions = sizeof...(Sizes);
  static constexpr int kSizes[] = {Sizes...};
  T elements[(1 * ... * Sizes)];
  Cell cells[(1 * ... * Sizes)];
  uint64_t era;

  struct Element {
    SharedArray* array;
    int64_t number;
    const char* name;
    int line;

    void check(Access access, const T* value) const {
      check_shared(name, &array->cells[number], &array->elements[number], sizeof(T), number, access,
                   value, line);
    }
    operator T() const { return check(Access::kRead, nullptr), array->elements[number]; }
    T operator=(const T& value) const {
      return check(Access::kWrite, &value), array->elements[number] = value;
    }
    T operator=(const Element& other) const { return *this = (T)other; }
    HLOOPT_COMPOUND(+)
    HLOOPT_COMPOUND(-)
    HLOOPT_COMPOUND(*)
    HLOOPT_COMPOUND(/)
    HLOOPT_COMPOUND(%)
    HLOOPT_COMPOUND(&)
    HLOOPT_COMPOUND(|)
    HLOOPT_COMPOUND(^)
    HLOOPT_COMPOUND(<<)
    HLOOPT_COMPOUND(>>)
    T operator++() const { return *this += 1; }
    T operator--() const { return *this -= 1; }
    T operator++(int) const { const T old = *this; *this += 1; return old; }
    T operator--(int) const { const T old = *this; *this -= 1; return old; }
  };

  Element slot(const char* name, Indices<kDimensions> at, int line = __builtin_LINE()) {
    if (era != stamp_era) memset(cells, 0, sizeof cells), era = stamp_era;
    int64_t linear = 0;
    for (int i = 0; i < kDimensions; i++) {
      if ((uint64_t)at.number[i] >= (uint64_t)kSizes[i])
        fail(line, "accesses index %lld of dimension %d of the shared array '%s', which has %d elements there",
             (long long)at.number[i], i, name, kSizes[i]);
      linear = linear * kSizes[i] + at.number[i];
    }
    return {this, linear, name, line};
  }
  T load(const char* name, Indices<kDimensions> at, int line = __builtin_LINE()) {
    return slot(name, at, line);
  }
  SharedPointer<SharedArray> pointer(const char* name, Indices<kDimensions> at,
                                     int line = __builtin_LINE()) {
    return {slot(name, at, line)};
  }
  template <class F>
  struct Member {
    Element element;
    F select;
    template <class V>
    void operator=(const V& value) const {
      T whole = element.array->elements[element.number];
      select(whole) = value;
      element = whole;
    }
  };
  template <class F>
  Member<F> member(const char* name, Indices<kDimensions> at, F select, int line = __builtin_LINE()) {
    return {slot(name, at, line), select};
  }
};

}  // namespace hloopt

// Atomics take `&p[i]`, which the driver writes as a checked pointer, or `&s[i]`, an element.
#define HLOOPT_CHECKED_ATOMIC(NAME, RESULT)                                                                \
  template <class T>                                                                                       \
  static inline T NAME(const hloopt::Checked<T>& to, hloopt::Same<T> value, HLOOPT_SITE) {                 \
    hloopt::check_access(to.region, to.address, sizeof(T), sizeof(T), hloopt::Access::kAtomic, nullptr, site); \
    return NAME((T*)to.address, value);                                                                    \
  }
HLOOPT_ATOMICS(HLOOPT_CHECKED_ATOMIC)
template <class T>
static inline T atomicCAS(const hloopt::Checked<T>& to, hloopt::Same<T> expected, hloopt::Same<T> value,
                          HLOOPT_SITE) {
  hloopt::check_access(to.region, to.address, sizeof(T), sizeof(T), hloopt::Access::kAtomic, nullptr, site);
  return hloopt::compare_and_swap<T>((T*)to.address, expected, value);
}

#define HLOOPT_SHARED_ATOMIC(NAME, RESULT)                                                      \
  template <class A>                                                                            \
  static inline typename A::Value NAME(const hloopt::SharedPointer<A>& to,                      \
                                       hloopt::Same<typename A::Value> value) {                 \
    return NAME(to.atomically(), value);                                                        \
  }
HLOOPT_ATOMICS(HLOOPT_SHARED_ATOMIC)
template <class A>
static inline typename A::Value atomicCAS(const hloopt::SharedPointer<A>& to,
                                          hloopt::Same<typename A::Value> expected,
                                          hloopt::Same<typename A::Value> value) {
  return hloopt::compare_and_swap<typename A::Value>(to.atomically(), expected, value);
}

template <class T>
static inline T __ldg(const hloopt::Checked<const T>& from, HLOOPT_SITE) { return from.load(0, site); }
template <class T>
static inline T __ldcg(const hloopt::Checked<const T>& from, HLOOPT_SITE) { return from.load(0, site); }
template <class T>
static inline T __ldca(const hloopt::Checked<const T>& from, HLOOPT_SITE) { return from.load(0, site); }
template <class T>
static inline T __ldcs(const hloopt::Checked<const T>& from, HLOOPT_SITE) { return from.load(0, site); }
template <class T>
static inline void __stcs(const hloopt::Checked<T>& to, hloopt::Same<T> value, HLOOPT_SITE) {
  to.slot(0, site) = value;
}
template <class T>
static inline void __stcg(const hloopt::Checked<T>& to, hloopt::Same<T> value, HLOOPT_SITE) {
  to.slot(0, site) = value;
}
