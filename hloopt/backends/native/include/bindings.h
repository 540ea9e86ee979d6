// Where the allocations of a plan lie while it runs for a caller that has memory of its own.
#pragma once
#include <string.h>

namespace hloopt {

// What happens to one input, result or weight.  The first two say where an allocation lies during this run.
enum BindingKind { kInputInPlace, kResultInPlace, kCopyInput, kCopyWeight, kCopyResult };

// `offset` is that of a result in its allocation, of a weight in the data.
struct Binding {
  long long kind, number, place, offset, size;
};

inline void bind(
    char** places, const Binding* each, const Binding* end, const void* const* inputs, void* const* results,
    const char* data) {
  for (; each != end; ++each) {
    char*& place = places[each->place];
    if (each->kind == kInputInPlace) place = (char*)inputs[each->number];
    else if (each->kind == kResultInPlace) place = (char*)results[each->number];
    else if (each->kind == kCopyWeight) memcpy(place, data + each->offset, each->size);
    else if (place != inputs[each->number]) memcpy(place, inputs[each->number], each->size);
  }
}

inline void hand_out(char* const* places, const Binding* each, const Binding* end, void* const* results) {
  for (; each != end; ++each) {
    const char* made = places[each->place] + each->offset;
    if (made != results[each->number]) memcpy(results[each->number], made, each->size);
  }
}

}  // namespace hloopt
