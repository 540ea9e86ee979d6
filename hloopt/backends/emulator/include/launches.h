// A launch as the parent sends it: its arguments, what is checked of them before and after, and the run.
#pragma once
#include <vector>

#include "control.h"
#include "pool.h"

extern "C" const hloopt::Kernel hloopt_kernels[];

namespace hloopt {

enum class Role : uint32_t { kIn, kOut, kUpdate };

struct Argument {  // as it is sent
  uint32_t allocation;
  Role role;
  uint32_t is_partial, reserved;
  uint64_t offset, size;
};

inline bool overlap(const Argument& a, const Argument& b) {
  return a.allocation == b.allocation && a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

inline bool is_read(const Argument& a) { return a.role != Role::kOut; }

// What an `out` argument held before is not to be read, except by way of another argument.
inline void begin_outputs(Memory& memory, const std::vector<Argument>& arguments) {
  for (const Argument& out : arguments) {
    if (out.role != Role::kOut || out.is_partial) continue;
    bool is_shared = false;
    for (const Argument& other : arguments) is_shared |= is_read(other) && overlap(out, other);
    if (!is_shared) memset(memory[out.allocation].written + out.offset, kNever, out.size);
  }
}

inline void end_outputs(Memory& memory, const std::vector<Argument>& arguments, const Kernel& kernel) {
  for (size_t i = 0; i < arguments.size(); i++) {
    const Argument& out = arguments[i];
    if (out.role != Role::kOut || out.is_partial) continue;
    const unsigned char* const written = memory[out.allocation].written + out.offset;
    uint64_t missing = 0, first = 0;
    for (uint64_t at = out.size; at-- > 0;)
      if (written[at] != kInThisLaunch) missing++, first = at;
    if (missing)
      fail_launch("leaves %llu of the %llu bytes of '%s' unwritten, the first at byte %llu",
                  (unsigned long long)missing, (unsigned long long)out.size, kernel.names[i],
                  (unsigned long long)first);
  }
  for (const Argument& argument : arguments) {
    if (argument.role == Role::kIn) continue;
    unsigned char* const written = memory[argument.allocation].written + argument.offset;
    for (uint64_t at = 0; at < argument.size; at++)
      if (written[at] == kInThisLaunch) written[at] = kEarlier;
  }
}

inline uint64_t next_stamp = 1;

inline void stamp_blocks(Memory& memory, uint64_t blocks) {
  if (blocks >= kMostBlocks) fail_launch("has more blocks than check mode can count");
  if (next_stamp + blocks >= kMostBlocks) {
    memory.forget_races();
    next_stamp = 1;
    stamp_era++;
  }
  first_stamp = next_stamp;
  next_stamp += blocks;
}

inline std::vector<Region> make_regions(Memory& memory, const std::vector<Argument>& arguments,
                                        const Kernel& kernel) {
  int granule = 3;
  for (int i = 0; i < kernel.pointer_count; i++)
    while (kernel.element_sizes[i] % (1 << granule)) granule--;
  std::vector<Region> regions;
  for (size_t i = 0; i < arguments.size(); i++) {
    const Argument& argument = arguments[i];
    const Allocation& allocation = memory[argument.allocation];
    Region region = {};
    region.begin = allocation.begin + argument.offset;
    region.size = argument.size;
    region.name = kernel.names[i];
    region.is_writable = argument.role != Role::kIn;
    region.allocation = allocation.begin;
    region.written = allocation.written;
    region.cells = allocation.cells;
    region.granule = granule;
    for (const Argument& other : arguments)
      region.is_tracked |= other.role != Role::kIn && overlap(argument, other);
    if (argument.size && argument.offset % (uint64_t)kernel.element_sizes[i] && hloopt_is_checked)
      fail_launch("is handed '%s' at byte %llu, which is not a multiple of its elements' %d bytes",
                  region.name, (unsigned long long)argument.offset, kernel.element_sizes[i]);
    regions.push_back(region);
  }
  return regions;
}

inline void launch(Commands& commands, Memory& memory, Pool& pool) {
  const uint32_t number = commands.next<uint32_t>();
  Launch made = {};
  made.grid = commands.next<Index>();
  made.block = commands.next<Index>();
  std::vector<Argument> arguments(commands.next<uint32_t>());
  std::vector<int32_t> scalars(commands.next<uint32_t>());
  commands.read(arguments.data(), arguments.size() * sizeof(Argument));
  commands.read(scalars.data(), scalars.size() * sizeof(int32_t));
  __atomic_store_n(&control->is_launching, 1, __ATOMIC_RELAXED);
  __atomic_store_n(&control->begun, control->begun + 1, __ATOMIC_RELEASE);
  const Kernel& kernel = hloopt_kernels[number];
  if ((int)arguments.size() != kernel.pointer_count || (int)scalars.size() != kernel.scalar_count)
    fail_launch("has %d pointers and %d scalars, and was handed %d and %d", kernel.pointer_count,
                kernel.scalar_count, (int)arguments.size(), (int)scalars.size());
  const std::vector<Region> regions = make_regions(memory, arguments, kernel);
  made.regions = regions.data(), made.region_count = (int)regions.size();
  made.scalars = scalars.data(), made.scalar_count = (int)scalars.size();
  if (hloopt_is_checked) {
    stamp_blocks(memory, (uint64_t)made.grid.x * made.grid.y * made.grid.z);
    begin_outputs(memory, arguments);
  }
  pool.run(kernel, made);
  if (hloopt_is_checked) end_outputs(memory, arguments, kernel);
  __atomic_store_n(&control->is_launching, 0, __ATOMIC_RELEASE);
}

}  // namespace hloopt
