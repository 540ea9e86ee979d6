// Matrix units: products of small matrices by a warp, their fragments, and asynchronous copies that feed them.

//@ multiply_m16n8k16_f16
// c += a * b of a warp: 16 by 16 times 16 by 8 numbers of f16, sums of f32.
__device__ void multiply_m16n8k16_f16(float& c0, float& c1, float& c2, float& c3, unsigned a0, unsigned a1,
                                      unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
#if defined(__CUDACC__)
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

//@ multiply_m16n8k16_bf16
// As multiply_m16n8k16_f16, of bf16.
__device__ void multiply_m16n8k16_bf16(float& c0, float& c1, float& c2, float& c3, unsigned a0, unsigned a1,
                                       unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
#if defined(__CUDACC__)
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

//@ multiply_m16n8k8_f16
// As multiply_m16n8k16_f16, 8 deep.
__device__ void multiply_m16n8k8_f16(float& c0, float& c1, float& c2, float& c3, unsigned a0, unsigned a1,
                                     unsigned b0) {
#if defined(__CUDACC__)
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
               : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a0), "r"(a1), "r"(b0));
#endif
}

//@ multiply_m16n8k8_tf32
// As multiply_m16n8k16_f16, 8 deep, of f32 whose lower 13 bits are ignored.
__device__ void multiply_m16n8k8_tf32(float& c0, float& c1, float& c2, float& c3, unsigned a0, unsigned a1,
                                      unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
#if defined(__CUDACC__)
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

//@ multiply_m16n8k32_s8
// As multiply_m16n8k16_f16, 32 deep, of s8 with sums of s32.
__device__ void multiply_m16n8k32_s8(int& c0, int& c1, int& c2, int& c3, unsigned a0, unsigned a1, unsigned a2,
                                     unsigned a3, unsigned b0, unsigned b1) {
#if defined(__CUDACC__)
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+r"(c0), "+r"(c1), "+r"(c2), "+r"(c3) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
}

//@ multiply_m8n8k4_f64
// As multiply_m16n8k16_f16, 8 by 4 times 4 by 8 numbers of f64.
__device__ void multiply_m8n8k4_f64(double& c0, double& c1, double a0, double b0) {
#if defined(__CUDACC__)
  asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1},{%2},{%3},{%0,%1};"
               : "+d"(c0), "+d"(c1) : "d"(a0), "d"(b0));
#endif
}

//@ load_matrices_x1
// A matrix of 8 rows of 16 bytes, of which lane r names row r: lane l gets word l % 4 of row l / 4, or of the
// transpose of 16-bit elements.
template <bool TRANSPOSED>
__device__ void load_matrices_x1(const void* row, unsigned& r0) {
#if defined(__CUDACC__)
  const unsigned at = (unsigned)__cvta_generic_to_shared(row);
  if constexpr (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0},[%1];" : "=r"(r0) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0},[%1];" : "=r"(r0) : "r"(at) : "memory");
#endif
}

//@ load_matrices_x2
// As load_matrices_x1, two: lane 8 + r names row r of the second.
template <bool TRANSPOSED>
__device__ void load_matrices_x2(const void* row, unsigned& r0, unsigned& r1) {
#if defined(__CUDACC__)
  const unsigned at = (unsigned)__cvta_generic_to_shared(row);
  if constexpr (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1},[%2];"
                 : "=r"(r0), "=r"(r1) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1},[%2];" : "=r"(r0), "=r"(r1) : "r"(at) : "memory");
#endif
}

//@ load_matrices_x4
// As load_matrices_x1, four: lane 8 i + r names row r of number i.
template <bool TRANSPOSED>
__device__ void load_matrices_x4(const void* row, unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3) {
#if defined(__CUDACC__)
  const unsigned at = (unsigned)__cvta_generic_to_shared(row);
  if constexpr (TRANSPOSED)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(at) : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(at) : "memory");
#endif
}

//@ copy_async: Vector
// Begin to copy BYTES (4, 8 or 16) bytes into shared memory; zeros unless `is_read`.  A plain copy before sm_80.
template <int BYTES, class T>
__device__ void copy_async(T* to, const T* from, bool is_read) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  const unsigned at = (unsigned)__cvta_generic_to_shared(to);
  const int size = is_read ? BYTES : 0;
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" : : "r"(at), "l"(from), "r"(size) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0],[%1],%2,%3;"
                 : : "r"(at), "l"(from), "n"(BYTES), "r"(size) : "memory");
#else
  using Bytes = Vector<unsigned, BYTES / 4>;
  *reinterpret_cast<Bytes*>(to) = is_read ? *reinterpret_cast<const Bytes*>(from) : Bytes{};
#endif
}

//@ commit_async
// Make a group of the copies begun since the last one.
__device__ void commit_async() {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}

//@ wait_async
// Wait for the groups of this thread's copies, but for the last GROUPS.
template <int GROUPS>
__device__ void wait_async() {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" : : "n"(GROUPS) : "memory");
#endif
}

//@ pack_pair
// Two elements of 16 bits in a register, the first in the lower half.
template <class T>
__device__ unsigned pack_pair(T first, T second) {
  return (unsigned)first.bits | (unsigned)second.bits << 16;
}

//@ pack_bf16: round_bf16
// Two numbers rounded to bf16, the first in the lower half.
__device__ unsigned pack_bf16(float first, float second) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  unsigned pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return (unsigned)round_bf16(first).bits | (unsigned)round_bf16(second).bits << 16;
#endif
}

//@ pack_f16: round_f16
// Two numbers rounded to f16, the first in the lower half.
__device__ unsigned pack_f16(float first, float second) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return (unsigned)round_f16(first).bits | (unsigned)round_f16(second).bits << 16;
#endif
}

//@ first_of_pair
// The element in the lower half of a register.
template <class T>
__device__ T first_of_pair(unsigned pair) {
  return T{(unsigned short)pair};
}

//@ second_of_pair
// The element in the upper half of a register.
template <class T>
__device__ T second_of_pair(unsigned pair) {
  return T{(unsigned short)(pair >> 16)};
}

//@ nearest_tf32
// The bits of an f32 such that what a product of tf32 reads of them is the nearest tf32, ties away from zero.
// Towards zero where that would be infinite.
__device__ unsigned nearest_tf32(unsigned bits) {
  return (bits & 0x7fffffffu) < 0x7f7ff000u ? bits + 0x1000u : bits;
}

//@ upper_pair: pack_bf16
// Two f32, by their bits, rounded to finite bf16, the first in the lower half.
__device__ unsigned upper_pair(unsigned first, unsigned second) {
  const float most = __uint_as_float(0x7f7f0000u);
  return pack_bf16(fmaxf(fminf(__uint_as_float(first), most), -most),
                   fmaxf(fminf(__uint_as_float(second), most), -most));
}

//@ lower_pair: pack_bf16
// What two f32 are beside their upper_pair, rounded to bf16; infinite, or no number, where they are.
__device__ unsigned lower_pair(unsigned first, unsigned second, unsigned upper) {
  return pack_bf16(__uint_as_float(first) - __uint_as_float(upper << 16),
                   __uint_as_float(second) - __uint_as_float(upper & 0xffff0000u));
}
