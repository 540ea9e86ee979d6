// Calls of native programs by address.
#include "entry.h"

using namespace hloopt;

// Prepares an entry: its lock, and a host's side that never needs Python.
extern "C" void hloopt_open(Entry* entry) {
  entry->alone = new std::mutex;
  entry->host.release = []() -> void* { return nullptr; };
  entry->host.take = [](void*) {};
  entry->host.signals = [] { return 0; };
}

extern "C" void hloopt_close(Entry* entry) { delete entry->alone; }

// Returns 0, or 1 with the first `room` - 1 characters of what failed.
extern "C" int hloopt_enter(
    Entry* entry, void* const* inputs, void* const* results, char* failure, long long room) {
  return enter(entry, inputs, results, failure, room);
}
