// What check mode verifies of every access: bounds, bytes that were written, alignment, races.
#pragma once
#include "scheduler.h"

namespace hloopt {

#ifndef HLOOPT_MOST_BLOCKS  // fewer, to try what happens then
#define HLOOPT_MOST_BLOCKS (1ull << 28)
#endif
constexpr uint64_t kMostBlocks = HLOOPT_MOST_BLOCKS, kMostTime = 1ull << 25;
constexpr unsigned char kNever = 0, kEarlier = 1, kInThisLaunch = 2;  // when a byte was written

extern uint64_t first_stamp;  // of the blocks of the running launch

inline uint64_t stamp_now(const Worker& w, bool is_atomic) {
  if (w.time >= kMostTime) fail(0, "synchronises more often than check mode can count");
  return w.block_stamp << 36 | (uint64_t)w.current << 26 | w.time << 1 | (is_atomic ? 1 : 0);
}

// Whether the access in `stamp` happens before what the running thread does now.
inline bool is_before(const Worker& w, uint64_t stamp) {
  const uint64_t block = stamp >> 36, time = stamp >> 1 & (kMostTime - 1);
  const int thread = (int)(stamp >> 26 & (kMostThreads - 1));
  if (block < first_stamp) return true;
  if (block != w.block_stamp) return false;
  if (thread == w.current || time < w.barrier_time) return true;
  const bool same_warp = thread / kWarpSize == w.current / kWarpSize;
  return same_warp && time < w.warps[thread / kWarpSize].sync_time;
}

inline const char* describe_thread(const Worker& w, uint64_t stamp, char* text, size_t size) {
  const Index thread = thread_index(w, (int)(stamp >> 26 & (kMostThreads - 1)));
  const uint64_t block = (stamp >> 36) - first_stamp;
  const Index grid = w.launch->grid;
  const bool is_own = stamp >> 36 == w.block_stamp;
  const int length = snprintf(text, size, "thread (%u, %u, %u)", thread.x, thread.y, thread.z);
  if (!is_own)
    snprintf(text + length, size - (size_t)length, " of block (%u, %u, %u)",
             (unsigned)(block % grid.x), (unsigned)(block / grid.x % grid.y),
             (unsigned)(block / grid.x / grid.y));
  return text;
}

[[noreturn]] inline void fail_race(const Worker& w, int line, const char* verb, const char* what,
                                   uint64_t other, const char* did) {
  char thread[96];
  describe_thread(w, other, thread, sizeof thread);
  const char* const between = other >> 36 == w.block_stamp ? "with no barrier between" : "in the same launch";
  fail(line, "%s %s, which %s %s %s", verb, what, thread, did, between);
}

// How far apart two threads are: those of different blocks are never ordered, those of a warp most easily.
inline int distance(uint64_t a, uint64_t b) {
  if (a >> 36 != b >> 36) return 2;
  return (a >> 26 & (kMostThreads - 1)) / kWarpSize != (b >> 26 & (kMostThreads - 1)) / kWarpSize;
}

// Two readers are enough where they are as far apart as any two are: a write that comes after both, comes
// after all others.
inline void note_reader(const Worker& w, Cell* cell, uint64_t now) {
  if (is_before(w, cell->reader)) {
    cell->reader = now;
    if (is_before(w, cell->other_reader)) cell->other_reader = 0;
  } else if (is_before(w, cell->other_reader) ||
             distance(cell->reader, now) > distance(cell->reader, cell->other_reader)) {
    cell->other_reader = now;
  }
}

// `is_same` says whether a write leaves the bytes as they are; `what` names them.
template <class Name>
inline void check_race(const Worker& w, Cell* cell, Access access, bool is_same, int line, Name name) {
  char what[128];
  const uint64_t now = stamp_now(w, access == Access::kAtomic);
  const uint64_t writer = cell->writer;
  const bool was_atomic = writer & 1;
  const bool after_writer = is_before(w, writer);
  if (access == Access::kRead) {
    if (!after_writer && !was_atomic)
      fail_race(w, line, "reads", name(what, sizeof what), writer, "writes");
    note_reader(w, cell, now);
    return;
  }
  const bool is_atomic = access == Access::kAtomic;
  const char* const verb = is_atomic ? "updates" : "writes";
  if (!after_writer && was_atomic != is_atomic)
    fail_race(w, line, verb, name(what, sizeof what), writer, was_atomic ? "updates atomically" : "writes");
  if (!after_writer && !is_atomic && !is_same)
    fail_race(w, line, verb, name(what, sizeof what), writer, "writes with another value");
  if (!is_atomic) {
    for (const uint64_t reader : {cell->reader, cell->other_reader})
      if (!is_before(w, reader)) fail_race(w, line, verb, name(what, sizeof what), reader, "reads");
  }
  cell->writer = now;
}

inline const char* verb_of(Access access) {
  return access == Access::kRead ? "reads" : access == Access::kWrite ? "writes" : "updates";
}

inline void check_place(const Region* region, int64_t offset, unsigned size, unsigned alignment,
                        Access access, int line) {
  const long long first = offset, last = offset + (long long)size - 1;
  if (offset < 0 || (uint64_t)offset + size > region->size)
    fail(line, "%s bytes %lld to %lld of '%s', which has %llu bytes", verb_of(access), first, last,
         region->name, (unsigned long long)region->size);
  if ((uintptr_t)(region->begin + offset) % alignment)
    fail(line, "%s %u bytes at byte %lld of '%s', which is not aligned to %u bytes", verb_of(access),
         size, first, region->name, alignment);
  if (access != Access::kRead && !region->is_writable)
    fail(line, "%s bytes %lld to %lld of '%s', which is an input", verb_of(access), first, last,
         region->name);
}

void check_access(const Region* region, const char* address, unsigned size, unsigned alignment,
                  Access access, const void* value, int line) {
  const Worker& w = *worker;
  const int64_t offset = (int64_t)((intptr_t)address - (intptr_t)region->begin);
  check_place(region, offset, size, alignment, access, line);
  const int64_t in_allocation = address - region->allocation;
  unsigned char* const written = region->written + in_allocation;
  if (access != Access::kWrite && memchr(written, kNever, size))
    fail(line, "%s bytes %lld to %lld of '%s', which were never written", verb_of(access),
         (long long)offset, (long long)offset + size - 1, region->name);
  if (region->is_tracked) {
    const int64_t step = 1ll << region->granule;
    for (int64_t at = 0; at < size; at += step) {
      const bool is_same = value && !memcmp(address + at, (const char*)value + at, (size_t)step);
      check_race(w, &region->cells[(in_allocation + at) >> region->granule], access, is_same, line,
                 [&](char* text, size_t room) {
                   snprintf(text, room, "bytes %lld to %lld of '%.40s'", (long long)(offset + at),
                            (long long)(offset + at + step - 1), region->name);
                   return text;
                 });
    }
  }
  if (access != Access::kRead) memset(written, kInThisLaunch, size);
}

void check_shared(const char* name, Cell* cell, const void* element, unsigned size, int64_t number,
                  Access access, const void* value, int line) {
  const Worker& w = *worker;
  if (cell->writer == kInFlight)
    fail(line, "%s element %lld of the shared array '%s' while an asynchronous copy to it is under way",
         verb_of(access), (long long)number, name);
  if (cell->writer >> 36 != w.block_stamp) cell->writer = 0;  // what another block left
  if (access != Access::kWrite && !cell->writer)
    fail(line, "%s element %lld of the shared array '%s', which no thread has written yet", verb_of(access),
         (long long)number, name);
  for (uint64_t* const reader : {&cell->reader, &cell->other_reader})
    if (*reader >> 36 != w.block_stamp) *reader = 0;
  const bool is_same = value && !memcmp(element, value, size);
  check_race(w, cell, access, is_same, line, [&](char* text, size_t room) {
    snprintf(text, room, "element %lld of the shared array '%.40s'", (long long)number, name);
    return text;
  });
}

}  // namespace hloopt
