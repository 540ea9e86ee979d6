// What a running block is made of: shared by the runtime (runtime.cpp) and the compiled programs.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace hloopt {

constexpr int kWarpSize = 32;
constexpr int kMostThreads = 1024;
constexpr int kSharedBytes = 48 * 1024;    // of the arrays that a function declares
constexpr int kDynamicBytes = 227 * 1024;  // given at the launch

struct Index {
  unsigned x, y, z;
};

// Who touched a byte last.  `stamp` packs block (28 bits), thread (10), time (25) and whether it was atomic (1).
struct Cell {
  uint64_t writer, reader, other_reader;
};

enum class Access { kRead, kWrite, kAtomic };

// A pointer argument: where it may point, and what is known of those bytes.
struct Region {
  char* begin;
  uint64_t size;
  const char* name;
  bool is_writable;
  bool is_tracked;        // whether accesses can race: some argument that overlaps it is written
  char* allocation;       // where the allocation of these bytes begins
  unsigned char* written; // a byte for each byte of the allocation
  Cell* cells;            // one for 1 << granule bytes of the allocation
  int granule;
};

struct Launch {
  Index grid, block;
  const Region* regions;
  int region_count;
  const int32_t* scalars;
  int scalar_count;
};

struct Kernel {
  const char* name;
  bool synchronizes;
  int pointer_count, scalar_count;
  const int* element_sizes;
  const char* const* names;
  // All threads of a block where they do not synchronize, else the one thread of `thread`.
  void (*run)(const Launch&, Index block, Index thread);
};

// What the lanes of a warp do together: the last that arrives runs it once, with the tasks of all 32.
struct WarpTask {
  void (*run)(WarpTask* const* tasks);
};

// The writer of bytes that an asynchronous copy has been begun into and has not written yet.
constexpr uint64_t kInFlight = ~0ull;

enum class WarpOp {
  kSync, kTask, kShuffle, kBallot, kMatch, kAdd, kMinSigned, kMaxSigned, kMin, kMax, kAnd, kOr, kXor
};

struct Warp {
  uint32_t live, ready, arrived;
  uint64_t sync_time;
  uint32_t mask[kWarpSize];
  int source[kWarpSize];
  int site[kWarpSize];
  WarpOp op[kWarpSize];
  alignas(16) unsigned char value[kWarpSize][16];
  alignas(16) unsigned char result[kWarpSize][16];
};

enum class State : unsigned char { kReady, kAtBarrier, kAtWarp, kDone };

struct Fiber {
  void* stack_pointer;
  void* context;    // where there is no hand-written switch
  char* stack;
  int caller_line;  // the kernel's line that called a function which synchronizes
  State state;
};

// An operating system's thread; it runs one block at a time.
struct Worker {
  alignas(16) char shared[kSharedBytes + kDynamicBytes];
  const Launch* launch;
  const Kernel* kernel;
  Index block;
  uint64_t block_stamp;
  int current;   // the running thread's number in its block
  int prepared;  // how many fibers have a stack with something on it
  int count, live, arrived, barrier_site;
  int votes, barrier_votes, barrier_count;  // of the last barrier; of the one being waited at; of the last one
  uint32_t ready_warps;
  uint64_t time, barrier_time;
  uint64_t random;
  bool is_shuffled, is_checked, is_running;
  Fiber main, fibers[kMostThreads];
  Warp warps[kMostThreads / kWarpSize];
};

extern __thread Worker* worker;
// Counts how often the numbers of blocks in stamps began anew; older stamps mean nothing.
extern uint64_t stamp_era;

// Waits for the block; returns how many threads voted, and in `count` how many there were.
int wait_for_block(int site, bool vote, int* count);
// Waits for the lanes of `mask`; `source` is the lane to read from for a shuffle.
void wait_for_warp(WarpOp op, uint32_t mask, int source, int site);
// Ends the process with a finding about the running thread; `format` as for printf.
[[noreturn]] void fail(int line, const char* format, ...) __attribute__((format(printf, 2, 3)));
// Checks an access of a pointer argument; `value` holds the bytes to be written.
void check_access(const Region* region, const char* address, unsigned size, unsigned alignment,
                  Access access, const void* value, int line);
// Checks an access of an element of a shared array.
void check_shared(const char* name, Cell* cell, const void* element, unsigned size, int64_t number,
                  Access access, const void* value, int line);

}  // namespace hloopt
