// The threads of a block as fibers: who runs next, barriers, and what a warp does together.
#pragma once
#include <sys/mman.h>

#include "fibers.h"

namespace hloopt {

constexpr size_t kStackBytes = 256 * 1024;
constexpr size_t kPageBytes = 16 * 1024;  // as large as any page, so that guards can be protected

inline Index thread_index(const Worker& w, int thread) {
  const Index size = w.launch->block;
  const unsigned t = (unsigned)thread;
  return {t % size.x, t / size.x % size.y, t / size.x / size.y};
}

inline uint32_t next_random(Worker& w) {
  w.random = w.random * 6364136223846793005ull + 1442695040888963407ull;
  return (uint32_t)(w.random >> 33);
}

// The lowest set bit at or above `from`, cyclically.
inline int next_bit(uint32_t bits, int from) {
  from &= 31;
  const uint32_t turned = bits >> from | (from ? bits << (32 - from) : 0);
  return (__builtin_ctz(turned) + from) & 31;
}

inline void make_ready(Worker& w, int warp, uint32_t lanes) {
  w.warps[warp].ready |= lanes;
  w.ready_warps |= 1u << warp;
  for (uint32_t left = lanes; left; left &= left - 1)
    w.fibers[warp * kWarpSize + __builtin_ctz(left)].state = State::kReady;
}

[[noreturn]] inline void fail_stuck(Worker& w);

// The thread to run next: of the same warp while one is ready; any one where orders are shuffled.
inline int choose(Worker& w) {
  if (!w.ready_warps) fail_stuck(w);
  const int own = w.current / kWarpSize;
  int warp = own, lane = w.current + 1;
  if (w.is_shuffled) {
    const uint32_t random = next_random(w);
    warp = next_bit(w.ready_warps, random & 31);
    lane = random >> 5 & 31;
  } else if (!(w.ready_warps >> own & 1)) {
    warp = next_bit(w.ready_warps, own + 1);
    lane = 0;
  }
  return warp * kWarpSize + next_bit(w.warps[warp].ready, lane);
}

inline void stop_being_ready(Worker& w, State state) {
  Warp& own = w.warps[w.current / kWarpSize];
  w.fibers[w.current].state = state;
  own.ready &= ~(1u << w.current % kWarpSize);
  if (!own.ready) w.ready_warps &= ~(1u << w.current / kWarpSize);
}

inline void suspend(Worker& w, State state) {
  Fiber& me = w.fibers[w.current];
  stop_being_ready(w, state);
  w.current = choose(w);
  switch_fiber(me, w.fibers[w.current]);
}

// ---------------------------------------------------------------- barriers of the block

inline void release_block(Worker& w) {
  if (w.is_checked && w.live < w.count)
    for (int i = 0; i < w.count; i++)
      if (w.fibers[i].state == State::kDone) {
        w.current = i;
        fail(w.barrier_site, "returned without reaching a barrier that other threads of its block wait at");
      }
  w.votes = w.barrier_votes;
  w.barrier_count = w.arrived;
  w.arrived = w.barrier_votes = 0;
  w.barrier_time = ++w.time;
  for (int i = 0; i * kWarpSize < w.count; i++)
    if (w.warps[i].live) make_ready(w, i, w.warps[i].live);
}

// A function of the program's prelude that synchronizes stands for the kernel's line that called it.
extern "C" const int hloopt_kernels_begin;
inline int site_of(const Worker& w, int line) {
  const int caller = w.fibers[w.current].caller_line;
  return line < hloopt_kernels_begin && caller ? caller : line;
}

int wait_for_block(int line, bool vote, int* count) {
  Worker& w = *worker;
  const int site = site_of(w, line);
  if (w.is_checked && w.arrived && w.barrier_site != site)
    fail(site, "waits at another barrier than threads of its block do, which wait at line %d",
         w.barrier_site);
  w.barrier_site = site;
  w.barrier_votes += vote;
  if (++w.arrived == w.live)
    release_block(w);
  else
    suspend(w, State::kAtBarrier);
  if (count) *count = w.barrier_count;
  return w.votes;
}

// ---------------------------------------------------------------- warps

inline const char* name_of(WarpOp op) {
  switch (op) {
    case WarpOp::kSync: return "__syncwarp";
    case WarpOp::kShuffle: return "a shuffle";
    case WarpOp::kBallot: return "a vote";
    case WarpOp::kMatch: return "a match";
    case WarpOp::kTask: return "a matrix operation";
    default: return "a reduction of a warp";
  }
}

inline unsigned combine(WarpOp op, unsigned a, unsigned b) {
  switch (op) {
    case WarpOp::kAdd: return a + b;
    case WarpOp::kMin: return b < a ? b : a;
    case WarpOp::kMax: return a < b ? b : a;
    case WarpOp::kMinSigned: return (int)b < (int)a ? b : a;
    case WarpOp::kMaxSigned: return (int)a < (int)b ? b : a;
    case WarpOp::kAnd: return a & b;
    case WarpOp::kOr: return a | b;
    default: return a ^ b;
  }
}

template <class T>
inline T value_of(const Warp& own, int lane) {
  T value;
  memcpy(&value, own.value[lane], sizeof value);
  return value;
}

inline void exchange_values(Worker& w, int warp, uint32_t group) {
  Warp& own = w.warps[warp];
  for (uint32_t left = group; left; left &= left - 1) {
    const int lane = __builtin_ctz(left), source = own.source[lane];
    const bool is_there = group >> source & 1;
    if (!is_there && w.is_checked) {
      w.current = warp * kWarpSize + lane;
      fail(own.site[lane], "shuffles from lane %d, which takes no part", source);
    }
    memcpy(own.result[lane], own.value[is_there ? source : lane], 16);
  }
}

inline void match_values(Warp& own, uint32_t group) {
  for (uint32_t left = group; left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    unsigned same = 0;
    for (uint32_t others = group; others; others &= others - 1) {
      const int other = __builtin_ctz(others);
      same |= (unsigned)!memcmp(own.value[lane], own.value[other], 8) << other;
    }
    memcpy(own.result[lane], &same, sizeof same);
  }
}

inline void run_task(Worker& w, int warp, uint32_t group) {
  Warp& own = w.warps[warp];
  const int first = __builtin_ctz(group);
  if (group != ~0u) {
    w.current = warp * kWarpSize + first;
    fail(own.site[first], "is at a matrix operation without lane %d of its warp: all 32 take part",
         __builtin_ctz(~group));
  }
  WarpTask* tasks[kWarpSize];
  for (int lane = 0; lane < kWarpSize; lane++) {
    tasks[lane] = value_of<WarpTask*>(own, lane);
    if (tasks[lane]->run != tasks[0]->run) {
      w.current = warp * kWarpSize + lane;
      fail(own.site[lane], "is at another matrix operation than lane 0 of its warp, which is in line %d",
           own.site[0]);
    }
  }
  tasks[0]->run(tasks);
}

inline void reduce_values(Warp& own, WarpOp op, uint32_t group) {
  const int first = __builtin_ctz(group);
  unsigned total = 0;
  if (op == WarpOp::kBallot) {
    for (uint32_t left = group; left; left &= left - 1) {
      const int lane = __builtin_ctz(left);
      total |= (value_of<unsigned>(own, lane) != 0 ? 1u : 0u) << lane;
    }
  } else {
    total = value_of<unsigned>(own, first);
    for (uint32_t left = group & (group - 1); left; left &= left - 1)
      total = combine(op, total, value_of<unsigned>(own, __builtin_ctz(left)));
  }
  for (uint32_t left = group; left; left &= left - 1)
    memcpy(own.result[__builtin_ctz(left)], &total, sizeof total);
}

// All lanes of `group` have arrived: do what they wait for, and let them go on.
inline void complete(Worker& w, int warp, uint32_t group) {
  Warp& own = w.warps[warp];
  const int first = __builtin_ctz(group);
  const WarpOp op = own.op[first];
  for (uint32_t left = group & (group - 1); left; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    const bool differs = own.op[lane] != op || own.mask[lane] != own.mask[first] ||
                         (w.is_checked && own.site[lane] != own.site[first]);
    if (differs) {
      w.current = warp * kWarpSize + lane;
      fail(own.site[lane], "is at %s with mask %#x while lane %d of its warp is at %s with mask %#x in line %d",
           name_of(own.op[lane]), own.mask[lane], first, name_of(op), own.mask[first],
           own.site[first]);
    }
  }
  if (op == WarpOp::kShuffle) exchange_values(w, warp, group);
  else if (op == WarpOp::kMatch) match_values(own, group);
  else if (op == WarpOp::kTask) run_task(w, warp, group);
  else if (op != WarpOp::kSync) reduce_values(own, op, group);
  else if (group == own.live) own.sync_time = ++w.time;
  own.arrived &= ~group;
  make_ready(w, warp, group);
}

void wait_for_warp(WarpOp op, uint32_t mask, int source, int line) {
  Worker& w = *worker;
  const int warp = w.current / kWarpSize, lane = w.current % kWarpSize;
  Warp& own = w.warps[warp];
  own.op[lane] = op;
  own.mask[lane] = mask;
  own.source[lane] = source;
  own.site[lane] = site_of(w, line);
  if (!(mask >> lane & 1))
    fail(own.site[lane], "is at %s whose mask %#x does not name its lane", name_of(op), mask);
  own.arrived |= 1u << lane;
  const uint32_t group = mask & own.live;
  if ((own.arrived & group) == group)
    complete(w, warp, group);
  else
    suspend(w, State::kAtWarp);
}

// ---------------------------------------------------------------- threads that end, and those that never will

// No thread can continue, so some lane waits for others of its warp, which wait elsewhere.
[[noreturn]] inline void fail_stuck(Worker& w) {
  for (int i = 0; i < w.count; i++) {
    if (w.fibers[i].state != State::kAtWarp) continue;
    const Warp& own = w.warps[i / kWarpSize];
    const uint32_t missing = own.mask[i % kWarpSize] & own.live & ~own.arrived;
    const int other = missing ? __builtin_ctz(missing) : -1;
    w.current = i;
    if (other >= 0)
      fail(own.site[i % kWarpSize],
           "waits at %s that lane %d of its warp does not reach: it waits at the barrier of line %d",
           name_of(own.op[i % kWarpSize]), other, w.barrier_site);
    fail(own.site[i % kWarpSize], "waits at %s, and lanes of its warp wait elsewhere",
         name_of(own.op[i % kWarpSize]));
  }
  fail(w.barrier_site, "waits at a barrier that threads of its block do not reach");
}

inline void end_thread(Worker& w) {
  const int warp = w.current / kWarpSize;
  Warp& own = w.warps[warp];
  stop_being_ready(w, State::kDone);
  own.live &= ~(1u << w.current % kWarpSize);
  w.live--;
  for (uint32_t left = own.arrived; left; left &= left - 1) {
    const uint32_t group = own.mask[__builtin_ctz(left)] & own.live;
    const bool still_waits = own.arrived >> __builtin_ctz(left) & 1;
    if (still_waits && (own.arrived & group) == group) complete(w, warp, group);
  }
  if (w.live && w.arrived == w.live) release_block(w);
}

inline void run_fiber() {
  for (;;) {
    Worker& w = *worker;
    Fiber& me = w.fibers[w.current];
    w.kernel->run(*w.launch, w.block, thread_index(w, w.current));
    end_thread(w);
    if (w.live) {
      w.current = choose(w);
      switch_fiber(me, w.fibers[w.current]);
    } else {
      switch_fiber(me, w.main);
    }
  }
}

inline void prepare_fibers(Worker& w, int count) {
  static const size_t stride = kStackBytes + kPageBytes;
  if (!w.fibers[0].stack) {
    char* const stacks = (char*)mmap(nullptr, stride * kMostThreads, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED) fail(0, "needs memory for stacks, and there is none");
    for (int i = 0; i < kMostThreads; i++) w.fibers[i].stack = stacks + stride * i;
  }
  for (; w.prepared < count; w.prepared++) {
    Fiber& fiber = w.fibers[w.prepared];
    mprotect(fiber.stack, kPageBytes, PROT_NONE);
    // Tops at different distances from a page's end, lest all stacks meet in the same lines of the cache.
    const size_t skip = (size_t)(w.prepared % 64) * 192;
    prepare(fiber, fiber.stack + stride - skip, kStackBytes - skip, run_fiber);
  }
}

inline void run_fibers(Worker& w) {
  const Index size = w.launch->block;
  w.count = w.live = (int)(size.x * size.y * size.z);
  prepare_fibers(w, w.count);
  w.arrived = w.barrier_votes = 0;
  w.ready_warps = 0;
  for (int i = 0; i * kWarpSize < w.count; i++) {
    const int lanes = w.count - i * kWarpSize;
    Warp& warp = w.warps[i];
    warp.live = lanes < kWarpSize ? (1u << lanes) - 1 : ~0u;
    warp.ready = warp.arrived = 0;
    warp.sync_time = 0;
    make_ready(w, i, warp.live);
  }
  for (int i = 0; i < w.count; i++) w.fibers[i].caller_line = 0;
  w.current = 0;
  if (w.is_shuffled) w.current = choose(w);
  switch_fiber(w.main, w.fibers[w.current]);
}

}  // namespace hloopt
