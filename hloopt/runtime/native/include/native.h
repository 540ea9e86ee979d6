// What the C++ of a native program is compiled against.
#pragma once
#include <time.h>

#include <atomic>
#include <condition_variable>
#include <initializer_list>
#include <mutex>
#include <thread>
#include <vector>

#include "words.h"
#include "integers.h"
#include "floats.h"
#include "pool_of_threads.h"

namespace hloopt {

// The Python side.  A call that returns something else than 0 ends the run with it.
struct Host {
  int (*call)(int step);                     // a step that the host runs
  int (*stuck)(int loop, long long trip);    // a loop whose state did not change in a trip
  int (*interrupted)();                      // whether to stop
  long long launches;
  int threads;
  long long asked;                           // when `interrupted` was asked last, in ns
};

// Every so many trips the clock is looked at, and every 100 ms the host is asked.
inline int stopped(Host* host, long long trip) {
  if (trip & 255) return 0;
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const long long ns = now.tv_sec * 1000000000ll + now.tv_nsec;
  if (ns - host->asked < 100000000) return 0;
  host->asked = ns;
  return host->interrupted();
}

// Tasks 0 to count - 1, a range for each thread.
template <class Body>
inline void share(Host* host, long long count, const Body& body) {
  if (host->threads == 1) {
    body(0, count);
    return;
  }
  run_shared(host->threads, count, body);
}

struct Bytes {
  const char* begin;
  long long size;
};

// Whether a loop of unknown count gets anywhere: its state is hashed before trip 2^n and before the next one.
struct Watch {
  static bool is_power(long long trip) { return (trip & (trip - 1)) == 0; }
  static bool asks(long long trip) {
    return trip >= 1024 && (is_power(trip) || is_power(trip - 1));
  }
  unsigned long long before = 0;
  bool repeats(long long trip, std::initializer_list<Bytes> state) {
    unsigned long long hash = 14695981039346656037ull;
    for (const Bytes& bytes : state)
      for (long long i = 0; i < bytes.size; ++i) hash = (hash ^ (unsigned char)bytes.begin[i]) * 1099511628211ull;
    const bool same = !is_power(trip) && hash == before;
    before = hash;
    return same;
  }
};

}  // namespace hloopt
