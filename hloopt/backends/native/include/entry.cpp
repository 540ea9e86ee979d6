// Calls of native programs by address.
#include "entry.h"

using namespace hloopt;

// What a program that does not call Python calls for a loop whose state an iteration left unchanged.
static void* end(void* loop, ...) {
  const Stuck* stuck = (const Stuck*)loop;
  *stuck->said = stuck->text;
  return stuck->text ? nullptr : loop;
}

// Prepares an entry: its lock, and a host's side that never needs Python.
extern "C" void hloopt_open(Entry* entry) {
  entry->alone = new std::mutex;
  entry->host.release = []() -> void* { return nullptr; };
  entry->host.take = [](void*) {};
  entry->host.signals = [] { return 0; };
  if (entry->caller) return;
  entry->host.invoke = end;
  entry->host.forget = [](void*) {};
}

extern "C" void hloopt_close(Entry* entry) { delete entry->alone; }

// Returns 0, or 1 with the first `room` - 1 characters of what failed.
extern "C" int hloopt_enter(
    Entry* entry, void* const* inputs, void* const* results, char* failure, long long room) {
  return enter(entry, inputs, results, failure, room);
}
