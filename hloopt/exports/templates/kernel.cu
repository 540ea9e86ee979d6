// $title
//
// $name runs $instruction by the kernel $kernel, chosen for $target.
// Written by hloopt.  To build and check it, on the machine of the GPU:
//
//   nvcc -std=c++17 -O3 -arch=$arch --fmad=false $name.cu -o $name && ./$name
//
// Without --fmad=false a product and a sum may be one rounding: faster, and no longer what the interpreter does bit by
// bit.  -DNO_MAIN leaves out the check, for a build of which this file is a part.
$arrays

#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>
#endif

$source
#ifndef __CUDACC_RTC__
// Enqueue the kernel on a stream.  Pointers are to memory of the device, each at a multiple of 256 bytes; of the
// workspace $workspace_size bytes are written.
extern "C" cudaError_t ${name}_launch($parameters, void* workspace, cudaStream_t stream) {
  cudaError_t status = cudaSuccess;
  (void)workspace;
$launches
  return status;
}

#ifndef NO_MAIN
// One input: `count` values of `size` bytes each, from which `elements` are made.
struct Input { size_t elements, count, size; unsigned salt; const unsigned char* values; };

// Number `at` of a result's numbers lies between two keys, integers in the order of the values.
struct Expected { size_t at; long long least, most; const char* value; };

// One result: its numbers have `size` bytes; 'f' has a sign before its magnitude, 'i' is a signed integer.
struct Result { size_t bytes, size; char kind; std::vector<Expected> expected; };

$tables
static unsigned mix(unsigned x) {
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  return x ^ x >> 16;
}

static long long key(const unsigned char* bytes, size_t size, char kind) {
  unsigned long long bits = 0;
  memcpy(&bits, bytes, size);
  const unsigned long long sign = 1ULL << (8 * size - 1);
  if (kind == 'f') return bits & sign ? -(long long)(bits & (sign - 1)) : (long long)bits;
  return kind == 'i' && bits & sign ? (long long)(bits | ~(2 * sign - 1)) : (long long)bits;
}

static void checked(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
  exit(5);
}

int main() {
  std::vector<void*> memory;
  for (const Input& input : inputs) {
    std::vector<unsigned char> bytes(input.elements * input.size);
    for (size_t i = 0; i < input.elements; ++i) {
      const size_t from = input.count == input.elements ? i : mix((unsigned)i ^ input.salt) % input.count;
      memcpy(&bytes[i * input.size], &input.values[from * input.size], input.size);
    }
    void* device = nullptr;
    checked(cudaMalloc(&device, bytes.size() + 1), "cudaMalloc");
    checked(cudaMemcpy(device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    memory.push_back(device);
  }
  for (const Result& result : results) {
    void* device = nullptr;
    checked(cudaMalloc(&device, result.bytes + 1), "cudaMalloc");
    memory.push_back(device);
  }
  void* workspace = nullptr;
  checked(cudaMalloc(&workspace, $workspace_size + 1), "cudaMalloc");
  checked(${name}_launch($memory, workspace, 0), "${name}_launch");
  checked(cudaDeviceSynchronize(), "$name");

  size_t compared = 0, wrong = 0;
  for (size_t number = 0; number < results.size(); ++number) {
    const Result& result = results[number];
    std::vector<unsigned char> bytes(result.bytes + 1);
    void* device = memory[inputs.size() + number];
    checked(cudaMemcpy(bytes.data(), device, result.bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (const Expected& expected : result.expected) {
      const long long got = key(&bytes[expected.at * result.size], result.size, result.kind);
      compared += 1;
      if (expected.least <= got && got <= expected.most) continue;
      wrong += 1;
      printf("result %zu, number %zu: the bits are off by %lld beyond what rounding allows of %s\n", number, expected.at,
             got < expected.least ? got - expected.least : got - expected.most, expected.value);
    }
  }
  if (wrong || !compared) {
    printf("$name: %zu of %zu numbers compared differ%s\n", wrong, compared, compared ? "" : ": nothing is verified");
    return 1;
  }
  cudaEvent_t begin, end;
  float milliseconds = 0;
  checked(cudaEventCreate(&begin), "cudaEventCreate");
  checked(cudaEventCreate(&end), "cudaEventCreate");
  checked(cudaEventRecord(begin, 0), "cudaEventRecord");
  for (int run = 0; run < 20; ++run) checked(${name}_launch($memory, workspace, 0), "${name}_launch");
  checked(cudaEventRecord(end, 0), "cudaEventRecord");
  checked(cudaEventSynchronize(end), "cudaEventSynchronize");
  checked(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
  printf("$name: ok, %zu numbers compared; %.2f us a run\n", compared, milliseconds * 50);
  return 0;
}
#endif
#endif
