// Atomic operations on memory of 1, 2, 4 and 8 bytes; loads with a cache hint.
#pragma once
#include "integers.h"
#include "floats.h"

namespace hloopt {

template <size_t N> struct Word;
template <> struct Word<1> { using Type = uint8_t; };
template <> struct Word<2> { using Type = uint16_t; };
template <> struct Word<4> { using Type = uint32_t; };
template <> struct Word<8> { using Type = uint64_t; };

template <class T> struct Itself { using Type = T; };  // keeps a parameter out of deduction
template <class T> using Same = typename Itself<T>::Type;

// Replaces the value at `address` by f(value), as one step; returns the old one.
template <class T, class F>
inline T exchange(T* address, F f) {
  using Bits = typename Word<sizeof(T)>::Type;
  Bits* const place = (Bits*)address;
  Bits old = __atomic_load_n(place, __ATOMIC_RELAXED);
  for (;;) {
    T value;
    memcpy(&value, &old, sizeof value);
    const T fresh = f(value);
    Bits bits;
    memcpy(&bits, &fresh, sizeof bits);
    if (__atomic_compare_exchange_n(place, &old, bits, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      return value;
  }
}

template <class T>
inline T compare_and_swap(T* address, T expected, T fresh) {
  using Bits = typename Word<sizeof(T)>::Type;
  Bits old, bits;
  memcpy(&old, &expected, sizeof old);
  memcpy(&bits, &fresh, sizeof bits);
  __atomic_compare_exchange_n((Bits*)address, &old, bits, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  memcpy(&expected, &old, sizeof old);
  return expected;
}

}  // namespace hloopt

// HLOOPT_ATOMIC(name, expression of `old` and `value`): for raw pointers here, for checked ones in checked.h.
#define HLOOPT_ATOMICS(OPERATION)                                               \
  OPERATION(atomicAdd, (T)(old + value))                                        \
  OPERATION(atomicSub, (T)(old - value))                                        \
  OPERATION(atomicExch, (T)((void)old, value))                                  \
  OPERATION(atomicMin, (value < old ? value : old))                             \
  OPERATION(atomicMax, (old < value ? value : old))                             \
  OPERATION(atomicAnd, (T)(old & value))                                        \
  OPERATION(atomicOr, (T)(old | value))                                         \
  OPERATION(atomicXor, (T)(old ^ value))                                        \
  OPERATION(atomicInc, (T)(old >= value ? 0 : old + 1))                         \
  OPERATION(atomicDec, (T)(old == 0 || old > value ? value : old - 1))

#define HLOOPT_RAW_ATOMIC(NAME, RESULT)                                         \
  template <class T>                                                            \
  static inline T NAME(T* address, hloopt::Same<T> value) {                     \
    return hloopt::exchange(address, [=](T old) { return RESULT; });            \
  }
HLOOPT_ATOMICS(HLOOPT_RAW_ATOMIC)
template <class T>
static inline T atomicCAS(T* address, hloopt::Same<T> expected, hloopt::Same<T> value) {
  return hloopt::compare_and_swap<T>(address, expected, value);
}

template <class T> static inline T __ldg(const T* address) { return *address; }
template <class T> static inline T __ldcg(const T* address) { return *address; }
template <class T> static inline T __ldca(const T* address) { return *address; }
template <class T> static inline T __ldcs(const T* address) { return *address; }
template <class T> static inline void __stcs(T* address, hloopt::Same<T> value) { *address = value; }
template <class T> static inline void __stcg(T* address, hloopt::Same<T> value) { *address = value; }
