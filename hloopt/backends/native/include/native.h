// What the C++ of a native program is compiled against.
#pragma once
#include <time.h>

#include <initializer_list>

#include "words.h"
#include "integers.h"
#include "floats.h"
#include "products.h"

namespace hloopt {

typedef void Range(void* context, long long begin, long long end);

// The Python side: what the driver calls, and what it reports.  A program runs without Python's lock and
// takes it to call; an exception stays where Python keeps it, and is raised when the program has returned.
// What a timed program records: sums by the numbers of steps, and spans of one run, as far as there is room.
struct Times {
  struct Span {
    long long step, begin, end, is_iteration;
  };
  long long* own;                     // ns, without those of steps inside
  long long* executions;
  long long* iterations;
  Span* spans;
  long long count, room, reserve;     // spans so far; how many fit, `reserve` of them steps of the entry only
  long long left_out;
  long long inside;                   // ns of what the present step contains, with the clock's own work
  long long depth;
};

struct Host {
  void* (*release)();                // give Python's lock away; returns what `take` wants
  void (*take)(void* state);
  int (*signals)();                  // run what handles signals; not 0 where it raised
  void* (*invoke)(void* callable, ...);
  void (*forget)(void* object);
  void** calls;                      // a callable for each step that the host runs
  void** stuck;                      // one for each loop whose state an iteration left unchanged
  // Tasks 0 to count - 1, a range at a time; `stop` is called in between and ends it where it returns other than 0.
  int (*share)(int threads, long long count, Range* body, void* context, int (*stop)(void*), void* stop_context);
  void* state;
  long long launches;
  long long checked;                  // when signals were checked last, in ns
  long long done;                    // steps of the entry that have run
  long long iterations;              // of the loop that is stuck
  int threads;
  int ends;                          // whether what handles signals has raised
  const void* runner;                // the thread that has begun this run, by the address of its `helped`
  Times* times;                      // of a timed program
  // A list of Python's with the array at each place, or null where the places have all addresses already; which of
  // them change from run to run; and where, in bytes, a list has its items, and an array its elements.
  const char* arrays;
  const long long* changing;
  long long changes, items, elements;
};

// The run that this thread has begun, or has a range of.
inline thread_local Host* helped = nullptr;

inline int call(Host* host, void* callable) {
  if (host->ends) return 1;
  host->take(host->state);
  void* made = host->invoke(callable, (void*)0);
  if (made) host->forget(made);
  host->state = host->release();
  return made == 0;
}

// Every 100 ms what handles signals runs; not 0 where the run shall end.  Looking at the clock takes some ns.
// Written out at every step, it would leave compilers no room for what matters: kernels where they are called.
__attribute__((noinline)) inline int stopped(Host* host) {
  if (host->ends) return 1;
  timespec now;
#ifdef CLOCK_MONOTONIC_COARSE
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
#else
  clock_gettime(CLOCK_MONOTONIC, &now);
#endif
  const long long ns = now.tv_sec * 1000000000ll + now.tv_nsec;
  if (ns - host->checked < 100000000) return 0;
  host->checked = ns;
  host->take(host->state);
  const int raised = host->signals();
  host->state = host->release();
  if (raised) __atomic_store_n(&host->ends, 1, __ATOMIC_RELAXED);
  return raised;
}

// What a long loop within a kernel calls now and then.  Only the thread that has begun the run has Python's state.
__attribute__((noinline, cold)) inline bool should_stop() {
  Host* host = helped;
  return host->runner == &helped ? stopped(host) != 0 : __atomic_load_n(&host->ends, __ATOMIC_RELAXED) != 0;
}

inline int ask(void* host) { return stopped((Host*)host); }

// Tasks 0 to count - 1, a range at a time.  Returns what `stopped` does.
template <class Body>
inline int share(Host* host, long long count, const Body& body) {
  struct Given {
    Host* host;
    const Body* body;
  };
  Range* each = [](void* context, long long begin, long long end) {
    const Given* given = (const Given*)context;
    helped = given->host;
    (*given->body)(begin, end);
  };
  const Given given = {host, &body};
  return host->share(host->threads, count, each, (void*)&given, ask, host);
}

// A kernel's function over its tasks, with what it is given beside their range.
template <auto function, class... Given>
inline int share(Host* host, long long count, Given... given) {
  return share(host, count, [=](long long begin, long long end) { function(begin, end, given...); });
}

inline long long now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000ll + time.tv_nsec;
}

__attribute__((noinline)) inline void keep(Times* times, long long step, long long begin, long long end, bool iteration) {
  const long long room = times->room - (times->depth ? times->reserve : 0);
  if (times->count < room)
    times->spans[times->count++] = {step, begin, end, iteration};
  else
    ++times->left_out;
}

// A step that contains no others has ended.
inline void lap(Host* host, long long step, long long begin) {
  Times* times = host->times;
  const long long end = now();
  times->own[step] += end - begin;
  ++times->executions[step];
  keep(times, step, begin, end, false);
  times->inside += now() - begin;
}

// A step that contains others.
struct Containing {
  long long begin, outside;
};

inline Containing enter(Host* host) {
  Times* times = host->times;
  const long long outside = times->inside;
  times->inside = 0;
  ++times->depth;
  return {now(), outside};
}

inline void leave(Host* host, long long step, Containing entered) {
  Times* times = host->times;
  const long long end = now();
  times->own[step] += end - entered.begin - times->inside;
  ++times->executions[step];
  --times->depth;
  keep(times, step, entered.begin, end, false);
  times->inside = entered.outside + (now() - entered.begin);
}

inline void iterated(Host* host, long long step, long long begin) {
  Times* times = host->times;
  const long long end = now();
  ++times->iterations[step];
  keep(times, step, begin, end, true);
  times->inside += now() - end;
}

// What the process calls.
// Addresses of arrays by the objects of Python that they are, whose lock is held.
inline void find_arrays(char** places, Host* host) {
  const char* const* arrays = *(const char* const* const*)(host->arrays + host->items);
  for (long long i = 0; i < host->changes; ++i) {
    const long long at = host->changing[i];
    places[at] = *(char* const*)(arrays[at] + host->elements);
  }
  host->arrays = nullptr;
}

inline int drive(int (*run)(char* const*, Host*), char* const* a, Host* host) {
  if (host->arrays) find_arrays((char**)a, host);
  host->done = 0;
  host->ends = 0;
  host->runner = &helped;
  Host* const before = helped;
  helped = host;
  host->state = host->release();
  const int failed = run(a, host);
  host->take(host->state);
  helped = before;
  return failed || host->ends;
}

struct Bytes {
  const char* begin;
  long long size;
};

// Whether a loop of unknown trip count makes progress: its state is hashed before iteration 2^n and the next.
struct Watch {
  static bool is_power(long long iteration) { return (iteration & (iteration - 1)) == 0; }
  static bool is_watched(long long iteration) {
    return iteration >= 1024 && (is_power(iteration) || is_power(iteration - 1));
  }
  unsigned long long before = 0;
  bool repeats(long long iteration, std::initializer_list<Bytes> state) {
    unsigned long long hash = 14695981039346656037ull;
    for (const Bytes& bytes : state)
      for (long long i = 0; i < bytes.size; ++i) hash = (hash ^ (unsigned char)bytes.begin[i]) * 1099511628211ull;
    const bool same = !is_power(iteration) && hash == before;
    before = hash;
    return same;
  }
};

template <class... State>
inline bool repeats(Watch& watch, long long iteration, State... state) {
  return watch.repeats(iteration, {state...});
}

}  // namespace hloopt
