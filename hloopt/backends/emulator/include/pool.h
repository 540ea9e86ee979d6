// The blocks of a launch, in an order the seed chooses, shared out among threads of the operating system.
#pragma once
#include <signal.h>
#include <stdlib.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "checks.h"
#include "memory.h"

namespace hloopt {

extern uint64_t seed;

inline uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

inline uint64_t greatest_divisor(uint64_t a, uint64_t b) {
  while (b) {
    const uint64_t rest = a % b;
    a = b, b = rest;
  }
  return a;
}

// The order of blocks: as they are numbered, or by a permutation that the seed chooses.
struct Order {
  uint64_t count, factor = 1, offset = 0;

  explicit Order(uint64_t blocks) : count(blocks) {
    if (!seed || count < 2) return;
    offset = mix(seed) % count;
    factor = mix(seed + 1) % count;
    while (greatest_divisor(factor, count) != 1) factor = factor + 1 < count ? factor + 1 : 1;
  }
  uint64_t operator()(uint64_t number) const {
    return (uint64_t)(((unsigned __int128)number * factor + offset) % count);
  }
};

// Signal handlers run on a stack of their own, since a fiber's may be what is full.
inline void use_alternate_stack() {
  static constexpr size_t size = 64 * 1024;
  stack_t stack = {};
  stack.ss_sp = malloc(size);
  stack.ss_size = size;
  sigaltstack(&stack, nullptr);
}

inline Worker* make_worker() {
  Worker* const made = (Worker*)map_private(sizeof(Worker));
  made->is_shuffled = seed != 0;
  made->is_checked = hloopt_is_checked;
  worker = made;
  use_alternate_stack();
  return made;
}

inline void run_block(Worker& w, uint64_t number) {
  const Index grid = w.launch->grid;
  w.block = {(unsigned)(number % grid.x), (unsigned)(number / grid.x % grid.y),
             (unsigned)(number / grid.x / grid.y)};
  w.block_stamp = first_stamp + number;
  w.time = 1;
  w.barrier_time = 0;
  w.random = mix(seed ^ mix(number));
  if (w.kernel->synchronizes) {
    run_fibers(w);
  } else {
    w.current = 0;
    for (Warp& warp : w.warps) warp.sync_time = 0;
    w.kernel->run(*w.launch, w.block, {});
  }
}

class Pool {
 public:
  explicit Pool(int threads) {
    make_worker();
    for (int i = 1; i < threads; i++) std::thread([this] { serve(); }).detach();
    threads_ = threads;
  }

  void run(const Kernel& kernel, const Launch& launch) {
    const Index grid = launch.grid, block = launch.block;
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    kernel_ = &kernel, launch_ = &launch;
    Order order(blocks);
    order_ = &order;
    chunk_ = blocks / ((uint64_t)threads_ * 8) + 1;
    next_ = 0;
    const bool is_small = blocks * block.x * block.y * block.z < 8192 || blocks == 1;
    if (threads_ == 1 || is_small) return work();
    {
      std::lock_guard<std::mutex> hold(mutex_);
      busy_ = threads_ - 1;
      round_++;
    }
    begin_.notify_all();
    work();
    std::unique_lock<std::mutex> hold(mutex_);
    end_.wait(hold, [this] { return busy_ == 0; });
  }

 private:
  void work() {
    Worker& w = *worker;
    w.kernel = kernel_, w.launch = launch_;
    w.is_running = true;
    for (;;) {
      const uint64_t from = next_.fetch_add(chunk_);
      if (from >= order_->count) break;
      const uint64_t to = from + chunk_ < order_->count ? from + chunk_ : order_->count;
      for (uint64_t i = from; i < to; i++) run_block(w, (*order_)(i));
    }
    w.is_running = false;
  }
  [[noreturn]] void serve() {
    make_worker();
    for (uint64_t seen = 0;; seen++) {
      std::unique_lock<std::mutex> hold(mutex_);
      begin_.wait(hold, [&] { return round_ > seen; });
      hold.unlock();
      work();
      hold.lock();
      if (--busy_ == 0) end_.notify_one();
    }
  }

  int threads_ = 1, busy_ = 0;
  uint64_t round_ = 0, chunk_ = 1;
  const Kernel* kernel_ = nullptr;
  const Launch* launch_ = nullptr;
  const Order* order_ = nullptr;
  std::atomic<uint64_t> next_{0};
  std::mutex mutex_;
  std::condition_variable begin_, end_;
};

}  // namespace hloopt
