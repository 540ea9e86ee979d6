// Vectors of elements, elements narrower than a byte, and exchange between the lanes of a warp.

//@ Vector struct
// N elements that are read and written at once; at most 16 bytes.
template <class T, int N> struct alignas(N * sizeof(T)) Vector { T lane[N]; };

//@ load_vector: Vector
// N elements at p, which is aligned to their size.
template <int N, class T>
__device__ Vector<T, N> load_vector(const T* p) {
  return *reinterpret_cast<const Vector<T, N>*>(p);
}

//@ store_vector: Vector
// Write N elements at p, which is aligned to their size.
template <class T, int N>
__device__ void store_vector(T* p, Vector<T, N> v) {
  *reinterpret_cast<Vector<T, N>*>(p) = v;
}

//@ shuffle_down loops exchanges
// The value of the lane `distance` above; the uppermost lanes get their own.
template <class T>
__device__ T shuffle_down(T value, int distance) {
  unsigned words[(sizeof(T) + 3) / 4] = {};
  memcpy(words, &value, sizeof(T));
  for (unsigned& word : words) word = __shfl_down_sync(0xffffffffu, word, distance);
  memcpy(&value, words, sizeof(T));
  return value;
}

//@ shuffle_up loops exchanges
// The value of the lane `distance` below; the lowest lanes get their own.
template <class T>
__device__ T shuffle_up(T value, int distance) {
  unsigned words[(sizeof(T) + 3) / 4] = {};
  memcpy(words, &value, sizeof(T));
  for (unsigned& word : words) word = __shfl_up_sync(0xffffffffu, word, distance);
  memcpy(&value, words, sizeof(T));
  return value;
}

//@ shuffle_xor loops exchanges
// The value of the lane whose number differs in the bits of `mask`.
template <class T>
__device__ T shuffle_xor(T value, int mask) {
  unsigned words[(sizeof(T) + 3) / 4] = {};
  memcpy(words, &value, sizeof(T));
  for (unsigned& word : words) word = __shfl_xor_sync(0xffffffffu, word, mask);
  memcpy(&value, words, sizeof(T));
  return value;
}

//@ shuffle_index loops exchanges
// The value of lane number `lane`.
template <class T>
__device__ T shuffle_index(T value, int lane) {
  unsigned words[(sizeof(T) + 3) / 4] = {};
  memcpy(words, &value, sizeof(T));
  for (unsigned& word : words) word = __shfl_sync(0xffffffffu, word, lane);
  memcpy(&value, words, sizeof(T));
  return value;
}

//@ wrap_signed
// The lowest BITS bits as a signed number.
template <int BITS>
__device__ signed char wrap_signed(int x) {
  return (signed char)((int)((unsigned)x << (32 - BITS)) >> (32 - BITS));
}

//@ wrap_unsigned
// The lowest BITS bits as an unsigned number.
template <int BITS>
__device__ unsigned char wrap_unsigned(unsigned x) {
  return (unsigned char)(x & ((1u << BITS) - 1));
}

//@ unpacked
// Element i of a packed byte: BITS bits, the first element lowest.
template <int BITS>
__device__ unsigned unpacked(unsigned char byte, unsigned i) {
  return byte >> (i % (8 / BITS) * BITS) & ((1u << BITS) - 1);
}

//@ same_bits loops
// Whether two values have the same bits.
template <class T>
__device__ bool same_bits(T a, T b) {
  unsigned char x[sizeof(T)], y[sizeof(T)];
  memcpy(x, &a, sizeof(T));
  memcpy(y, &b, sizeof(T));
  bool same = true;
  for (int i = 0; i < (int)sizeof(T); ++i) same = same && x[i] == y[i];
  return same;
}

//@ swap_if loops
// Put `value` at p if `expected` is there, as one step; returns what was there.  1, 2, 4 or 8 bytes.
template <class P, class T>
__device__ T swap_if(P p, T expected, T value) {
#ifdef HLOOPT_EMULATOR
  return atomicCAS(p, expected, value);
#else
  T old;
  if constexpr (sizeof(T) == 8) {
    unsigned long long e, v;
    memcpy(&e, &expected, 8);
    memcpy(&v, &value, 8);
    v = atomicCAS(reinterpret_cast<unsigned long long*>(p), e, v);
    memcpy(&old, &v, 8);
  } else if constexpr (sizeof(T) == 4) {
    unsigned e, v;
    memcpy(&e, &expected, 4);
    memcpy(&v, &value, 4);
    v = atomicCAS(reinterpret_cast<unsigned*>(p), e, v);
    memcpy(&old, &v, 4);
  } else {
    // The word around it; its other bytes stay as they are.
    const unsigned long long address = reinterpret_cast<unsigned long long>(p);
    unsigned* word = reinterpret_cast<unsigned*>(address & ~3ull);
    const int shift = (int)(address & 3) * 8;
    const unsigned mask = (sizeof(T) == 2 ? 0xffffu : 0xffu) << shift;
    unsigned e = 0, v = 0, seen = *word;
    memcpy(&e, &expected, sizeof(T));
    memcpy(&v, &value, sizeof(T));
    for (;;) {
      if (((seen & mask) >> shift) != e) break;
      const unsigned before = atomicCAS(word, seen, (seen & ~mask) | (v << shift));
      if (before == seen) break;
      seen = before;
    }
    const unsigned found = (seen & mask) >> shift;
    memcpy(&old, &found, sizeof(T));
  }
  return old;
#endif
}

//@ hidden_zero
// A zero that no compiler knows of: what is read at it is read each time, not kept in a register.
__device__ int hidden_zero() {
  int zero = 0;
#if defined(__CUDACC__)
  asm volatile("mov.u32 %0, 0;" : "=r"(zero));
#endif
  return zero;
}
