// What a library that `hloopt build` makes consists of beside its kernels: tables of constants, and the functions of
// its header.  The unit that includes this defines LIBRARY(name), which puts the library's prefix before a name, and
// the tables; library.cpp defines the functions.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "bindings.h"
#include "native.h"

namespace hloopt {

// Where an allocation lies for the life of a context; inputs and results have other places in each run.
enum Home { kGiven, kData, kMemory };

struct Place {
  long long home, offset;
};

// A loop of unknown trip count: what is said where an iteration left its state unchanged, a format for their number;
// null where such an iteration may change something all the same.
struct Loop {
  const char* endless;
};

struct Library {
  int (*run)(char* const* places, Host* host);
  int (*share)(int threads, long long count, Range* body, void* context, int (*stop)(void*), void* stop_context);
  long long inputs, results;
  const Place* places;
  long long place_count;
  const Binding* bound;  // those before the run, then those after it
  long long before, after;
  void* const* loops;
  long long memory;     // bytes of a context
  const char* data;     // constants and weights that are part of the library
  const char* file_head;  // the first bytes of the file that has them instead, or null
  long long file_size;
  const char* build;
};

}  // namespace hloopt
