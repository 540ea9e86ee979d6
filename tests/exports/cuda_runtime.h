// As much of CUDA's runtime as an exported file uses, for a compiler of C++: kernels without barriers, a thread at a time.
#pragma once
#include <cmath>
#include <cstdlib>
#include <cstring>
#define __global__
#define __device__
#define __launch_bounds__(...)
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
static dim3 threadIdx, blockIdx, blockDim, gridDim;
using std::memcpy;
inline float __uint_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }
inline unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }
using cudaError_t = int;
using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = int;
enum { cudaSuccess, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
inline const char* cudaGetErrorString(int) { return "an error"; }
inline int cudaMalloc(void** p, size_t n) { return *p = std::aligned_alloc(256, (n + 255) / 256 * 256), 0; }
inline int cudaMemcpy(void* to, const void* from, size_t n, int) { return memcpy(to, from, n), 0; }
inline int cudaMemcpyAsync(void* to, const void* from, size_t n, int, cudaStream_t) { return memcpy(to, from, n), 0; }
inline int cudaMemsetAsync(void* to, int value, size_t n, cudaStream_t) { return std::memset(to, value, n), 0; }
inline int cudaDeviceSynchronize() { return 0; }
inline int cudaEventCreate(int*) { return 0; }
inline int cudaEventRecord(int, cudaStream_t = nullptr) { return 0; }
inline int cudaEventSynchronize(int) { return 0; }
inline int cudaEventElapsedTime(float* ms, int, int) { return *ms = 0.1f, 0; }

// Every kernel of the tests has at most 8 pointers; surplus arguments of a C function are not read.
inline int cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** given, size_t, cudaStream_t) {
  using Kernel = void (*)(void*, void*, void*, void*, void*, void*, void*, void*);
  void* p[8] = {};
  for (int i = 0; i < POINTERS; ++i) p[i] = *(void**)given[i];
  gridDim = grid, blockDim = block;
  for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x)
    for (threadIdx.x = 0; threadIdx.x < block.x; ++threadIdx.x)
      ((Kernel)function)(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]);
  return cudaSuccess;
}
