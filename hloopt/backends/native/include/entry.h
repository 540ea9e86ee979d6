// A program that is called with the addresses of its inputs and results, from any thread.
#pragma once
#include <stdio.h>
#include <string.h>

#include <mutex>

#include "bindings.h"
#include "native.h"

namespace hloopt {

// Filled in by Python.  `caller` runs what is, or calls, Python: it returns None, or a text that says what failed.
struct Entry {
  int (*run)(char* const* places, Host* host);
  char** places;  // of the plan's allocations
  Host host;
  const Binding* bound;  // those before the run, then those after it
  long long before, after;
  void* caller;
  int (*ensure)();  // Python's lock, for any thread
  void (*leave)(int state);
  void* (*invoke)(void* callable, ...);
  const char* (*text)(void* object);
  void (*clear)();
  void (*forget)(void* object);
  void* none;
  const char* said;  // of a loop that does not end
  std::mutex* alone;
};

// What stands for a loop in a program that does not call Python: a format for its iterations, or null where an
// iteration may change nothing.
struct Stuck {
  const char** said;
  const char* text;
};

// Copies at most `room` characters of what failed, and returns whether it did.
inline bool call_python(const Entry* entry, char* failure, long long room) {
  const int state = entry->ensure();
  void* made = entry->invoke(entry->caller, (void*)0);
  const bool failed = made != entry->none;
  if (failed) {
    const char* text = made ? entry->text(made) : nullptr;
    strncpy(failure, text ? text : "the program was interrupted", room - 1);
    failure[room - 1] = 0;
    entry->clear();
  }
  if (made) entry->forget(made);
  entry->leave(state);
  return failed;
}

inline bool enter(Entry* entry, void* const* inputs, void* const* results, char* failure, long long room) {
  std::lock_guard<std::mutex> lock(*entry->alone);
  const Binding* after = entry->bound + entry->before;
  bind(entry->places, entry->bound, after, inputs, results, nullptr);
  if (entry->caller) {
    if (call_python(entry, failure, room)) return true;
  } else if (entry->run(entry->places, &entry->host)) {
    snprintf(failure, room, entry->said, entry->host.iterations);
    return true;
  }
  hand_out(entry->places, after, after + entry->after, results);
  return false;
}

}  // namespace hloopt
