// From a member function of a program to a row of its table of kernels.
#pragma once
#include <utility>

#include "builtins.h"
#include "atomics.h"
#ifdef HLOOPT_CHECK
#include "checked.h"
#endif

namespace hloopt {

// How a parameter of type A comes out of a launch.
template <class A>
struct Parameter {
  static constexpr int kElementSize = 0;
  static A get(const Launch& launch, int number) {
    return (A)launch.scalars[number - launch.region_count];
  }
};
template <class T>
struct Parameter<T*> {
  static constexpr int kElementSize = sizeof(T);
  static T* get(const Launch& launch, int number) { return (T*)launch.regions[number].begin; }
};
#ifdef HLOOPT_CHECK
template <class T>
struct Parameter<Checked<T>> {
  static constexpr int kElementSize = sizeof(T);
  static Checked<T> get(const Launch& launch, int number) {
    const Region* region = &launch.regions[number];
    return {region, region->begin};
  }
};
#endif

template <auto Function> struct Entry;
template <class Program, class... A, void (Program::*Function)(A...)>
struct Entry<Function> {
  static constexpr int kElementSizes[] = {Parameter<A>::kElementSize..., 0};
  static constexpr int kPointers = (0 + ... + (Parameter<A>::kElementSize > 0));
  static constexpr int kScalars = sizeof...(A) - kPointers;

  static void run_thread(const Launch& launch, Index block, Index thread) {
    run_one(launch, block, thread, std::make_index_sequence<sizeof...(A)>());
  }
  static void run_block(const Launch& launch, Index block, Index) {
    run_all(launch, block, std::make_index_sequence<sizeof...(A)>());
  }

 private:
  template <size_t... N>
  static void run_one(const Launch& launch, Index block, Index thread, std::index_sequence<N...>) {
    Program program;
    program.threadIdx = thread, program.blockIdx = block;
    program.blockDim = launch.block, program.gridDim = launch.grid;
    (program.*Function)(Parameter<A>::get(launch, N)...);
  }
  template <size_t... N>
  static void run_all(const Launch& launch, Index block, std::index_sequence<N...>) {
    loop(launch.grid, launch.block, block, Parameter<A>::get(launch, N)...);
  }
  // The arguments are values here, so that nothing is read again in the loop and it can be vectorised.
  static void loop(const Index grid, const Index size, const Index block, A... arguments) {
    for (unsigned z = 0; z < size.z; z++)
      for (unsigned y = 0; y < size.y; y++)
        for (unsigned x = 0; x < size.x; x++) {
#ifdef HLOOPT_CHECK
          worker->current = (z * size.y + y) * size.x + x;
#endif
          Program program;
          program.threadIdx = {x, y, z}, program.blockIdx = block;
          program.blockDim = size, program.gridDim = grid;
          (program.*Function)(arguments...);
        }
  }
};

}  // namespace hloopt

#define HLOOPT_KERNEL(NAME, SYNCHRONIZES, ...)                                                        \
  static const char* const hloopt_names_##NAME[] = {__VA_ARGS__};                                     \
  static constexpr hloopt::Kernel hloopt_kernel_##NAME() {                                            \
    using Entry = hloopt::Entry<&Program::NAME>;                                                      \
    return {#NAME, SYNCHRONIZES, Entry::kPointers, Entry::kScalars, Entry::kElementSizes,             \
            hloopt_names_##NAME, SYNCHRONIZES ? &Entry::run_thread : &Entry::run_block};              \
  }
