// Allocations in memory shared with the parent, and what is known of their bytes where accesses are checked.
#pragma once
#include <sys/mman.h>

#include <vector>

#include "worker.h"

extern "C" const bool hloopt_is_checked;

namespace hloopt {

// Ends the process with a finding about a launch as a whole, or between launches.
[[noreturn]] void fail_launch(const char* format, ...) __attribute__((format(printf, 1, 2)));

struct Allocation {
  char* begin = nullptr;
  uint64_t size = 0;
  unsigned char* written = nullptr;  // only where accesses are checked
  Cell* cells = nullptr;
};

inline char* map_private(uint64_t size) {
  void* const begin = mmap(nullptr, size ? size : 1, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) fail_launch("needs %llu bytes of memory, and there is none", (unsigned long long)size);
  return (char*)begin;
}

class Memory {
 public:
  explicit Memory(int descriptor) : descriptor_(descriptor) {}

  void add_segment(uint64_t offset, uint64_t size) {
    void* const begin = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, (off_t)offset);
    if (begin == MAP_FAILED) fail_launch("cannot map %llu bytes of memory", (unsigned long long)size);
    segments_.push_back((char*)begin);
  }
  void add_allocation(uint64_t segment, uint64_t offset, uint64_t size) {
    Allocation fresh;
    fresh.begin = segments_[segment] + offset;
    fresh.size = size;
    if (hloopt_is_checked) {
      fresh.written = (unsigned char*)map_private(size);
      fresh.cells = (Cell*)map_private(size * sizeof(Cell));
    }
    allocations_.push_back(fresh);
  }
  Allocation& operator[](uint32_t number) { return allocations_[number]; }
  // What is known of accesses is of launches long ago: forget it, and count blocks from the beginning.
  void forget_races() {
    for (Allocation& each : allocations_) {
      munmap(each.cells, each.size ? each.size * sizeof(Cell) : 1);
      each.cells = (Cell*)map_private(each.size * sizeof(Cell));
    }
  }

 private:
  int descriptor_;
  std::vector<char*> segments_;
  std::vector<Allocation> allocations_;
};

}  // namespace hloopt
