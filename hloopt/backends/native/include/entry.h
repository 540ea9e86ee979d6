// A program that is called with the addresses of its inputs and results, from any thread.
#pragma once
#include <stdio.h>
#include <string.h>

#include <mutex>

#include "native.h"

namespace hloopt {

// What happens to one input or result.  The first two say where an allocation lies during this run.
enum Binding { kInputLies, kResultLies, kCopyInput, kCopyResult };

struct Bound {
  long long binding, number, place, offset, size;
};

// Filled in by Python.  `caller` runs what is, or calls, Python: it returns None, or a text that says what failed.
struct Entry {
  int (*run)(char* const* places, Host* host);
  char** places;  // of the plan's allocations
  Host host;
  const Bound* bound;  // those before the run, then those after it
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
  const Bound* each = entry->bound;
  for (const Bound* end = each + entry->before; each != end; ++each) {
    char*& place = entry->places[each->place];
    if (each->binding == kInputLies) place = (char*)inputs[each->number];
    else if (each->binding == kResultLies) place = (char*)results[each->number];
    else if (place != inputs[each->number]) memcpy(place, inputs[each->number], each->size);
  }
  if (entry->caller) {
    if (call_python(entry, failure, room)) return true;
  } else if (entry->run(entry->places, &entry->host)) {
    snprintf(failure, room, entry->said, entry->host.iterations);
    return true;
  }
  for (const Bound* end = each + entry->after; each != end; ++each) {
    const char* made = entry->places[each->place] + each->offset;
    if (made != results[each->number]) memcpy(results[each->number], made, each->size);
  }
  return false;
}

}  // namespace hloopt
