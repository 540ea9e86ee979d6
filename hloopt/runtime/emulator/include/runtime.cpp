// The process a program runs in: memory it shares with its parent, launches, and an account of what went wrong.
#include "control.h"

#include <sys/mman.h>

#include <condition_variable>
#include <initializer_list>
#include <mutex>
#include <thread>
#include <vector>

#include "checks.h"

extern "C" {
extern const hloopt::Kernel hloopt_kernels[];
extern const int hloopt_kernel_count;
extern const bool hloopt_is_checked;
}

namespace hloopt {

__thread Worker* worker;
Control* control;
uint64_t first_stamp = 1;

// ---------------------------------------------------------------- what went wrong

static std::atomic<bool> has_ended{false};

// The first to fail tells; the others wait for the end.
static void claim_end() {
  if (has_ended.exchange(true))
    for (;;) pause();
}

static void tell_place(bool has_thread) {
  const Worker* const w = worker;
  if (!w || !w->is_running) return;
  control->has_block = 1;
  memcpy(control->block, &w->block, sizeof control->block);
  if (!has_thread) return;
  const Index thread = thread_index(*w, w->current);
  control->has_thread = 1;
  memcpy(control->thread, &thread, sizeof control->thread);
}

static bool knows_thread() {
  return worker && worker->is_running && (worker->is_checked || worker->kernel->synchronizes);
}

void fail(int line, const char* format, ...) {
  claim_end();
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(control->text, sizeof control->text, format, arguments);
  va_end(arguments);
  control->line = line;
  tell_place(knows_thread());
  control->status = kFinding;
  _exit(kFindingExit);
}

// A finding about a launch as a whole.
[[noreturn]] static void fail_launch(const char* format, ...) {
  claim_end();
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(control->text, sizeof control->text, format, arguments);
  va_end(arguments);
  control->status = kFinding;
  _exit(kFindingExit);
}

static void handle_signal(int number, siginfo_t* information, void*) {
  claim_end();
  control->signal = number;
  if (worker && worker->is_running) {
    const char* const stack = worker->fibers[worker->current].stack;
    const char* const address = (const char*)information->si_addr;
    if (number == SIGSEGV && stack && address >= stack && address < stack + kPageBytes)
      strcpy(control->text, "its stack is full");
  }
  tell_place(knows_thread());
  control->status = kSignal;
  _exit(128 + number);
}

static void catch_signals() {
  struct sigaction action = {};
  action.sa_sigaction = handle_signal;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP})
    sigaction(number, &action, nullptr);
}

static void use_alternate_stack() {
  static const size_t size = 64 * 1024;
  stack_t stack = {};
  stack.ss_sp = malloc(size);
  stack.ss_size = size;
  sigaltstack(&stack, nullptr);
}

// ---------------------------------------------------------------- memory

struct Allocation {
  char* begin = nullptr;
  uint64_t size = 0;
  unsigned char* written = nullptr;  // only where accesses are checked
  Cell* cells = nullptr;
};

static char* map_private(uint64_t size) {
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

// ---------------------------------------------------------------- launches

static uint64_t seed;
static uint64_t next_stamp = 1;

static uint64_t mix(uint64_t x) {  // splitmix64
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

static uint64_t greatest_divisor(uint64_t a, uint64_t b) {
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

static Worker* make_worker() {
  Worker* const made = (Worker*)map_private(sizeof(Worker));
  made->is_shuffled = seed != 0;
  made->is_checked = hloopt_is_checked;
  worker = made;
  use_alternate_stack();
  return made;
}

static void run_block(Worker& w, uint64_t number) {
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

enum class Role : uint32_t { kIn, kOut, kUpdate };

struct Argument {  // as it is sent
  uint32_t allocation;
  Role role;
  uint32_t is_partial, reserved;
  uint64_t offset, size;
};

static bool overlap(const Argument& a, const Argument& b) {
  return a.allocation == b.allocation && a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

static bool is_read(const Argument& a) { return a.role != Role::kOut; }

// What an `out` argument held before is not to be read, except by way of another argument.
static void begin_outputs(Memory& memory, const std::vector<Argument>& arguments) {
  for (const Argument& out : arguments) {
    if (out.role != Role::kOut || out.is_partial) continue;
    bool is_shared = false;
    for (const Argument& other : arguments) is_shared |= is_read(other) && overlap(out, other);
    if (!is_shared) memset(memory[out.allocation].written + out.offset, kNever, out.size);
  }
}

static void end_outputs(Memory& memory, const std::vector<Argument>& arguments, const Kernel& kernel) {
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

static void stamp_blocks(Memory& memory, uint64_t blocks) {
  if (blocks >= kMostBlocks) fail_launch("has more blocks than check mode can count");
  if (next_stamp + blocks >= kMostBlocks) memory.forget_races(), next_stamp = 1;
  first_stamp = next_stamp;
  next_stamp += blocks;
}

static std::vector<Region> make_regions(Memory& memory, const std::vector<Argument>& arguments,
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

static void launch(Commands& commands, Memory& memory, Pool& pool) {
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

// ---------------------------------------------------------------- the parent's commands

struct Range {
  uint32_t allocation, value;
  uint64_t offset, size;
};

static void mark_written(Memory& memory, const Range& range) {
  if (hloopt_is_checked) memset(memory[range.allocation].written + range.offset, kEarlier, range.size);
}

static void copy(Memory& memory, const Range& to, const Range& from) {
  Allocation &target = memory[to.allocation], &source = memory[from.allocation];
  memmove(target.begin + to.offset, source.begin + from.offset, to.size);
  if (hloopt_is_checked)
    memmove(target.written + to.offset, source.written + from.offset, to.size);
}

static void expect_written(Memory& memory, const Range& range) {
  const unsigned char* const written = memory[range.allocation].written + range.offset;
  const void* const missing = memchr(written, kNever, range.size);
  if (missing)
    fail_launch("byte %lld of the %llu to be downloaded was never written",
                (long long)((const unsigned char*)missing - written), (unsigned long long)range.size);
}

[[noreturn]] static void serve(Commands& commands, Memory& memory, Pool& pool, int replies) {
  for (;;) switch (commands.next<Command>()) {
      case Command::kSegment: {
        const uint64_t offset = commands.next<uint64_t>(), size = commands.next<uint64_t>();
        memory.add_segment(offset, size);
        break;
      }
      case Command::kAllocation: {
        const uint64_t segment = commands.next<uint64_t>(), offset = commands.next<uint64_t>();
        memory.add_allocation(segment, offset, commands.next<uint64_t>());
        break;
      }
      case Command::kWritten:
        mark_written(memory, commands.next<Range>());
        break;
      case Command::kCopy: {
        const Range to = commands.next<Range>(), from = commands.next<Range>();
        copy(memory, to, from);
        break;
      }
      case Command::kFill: {
        const Range range = commands.next<Range>();
        memset(memory[range.allocation].begin + range.offset, (int)range.value, range.size);
        mark_written(memory, range);
        break;
      }
      case Command::kLaunch:
        launch(commands, memory, pool);
        break;
      case Command::kExpectWritten:
        expect_written(memory, commands.next<Range>());
        break;
      case Command::kSync:
        if (write(replies, "", 1) != 1) _exit(0);
        break;
      default:
        control->status = kBroken;
        _exit(kFindingExit);
    }
}

// Ends the process when its parent does, whatever a kernel is doing.
static void follow_parent(int commands, pid_t parent) {
  std::thread([=] {
    for (;;) {
      pollfd descriptor = {commands, 0, 0};
      const int count = poll(&descriptor, 1, 200);
      if (getppid() != parent) _exit(0);
      // The parent has closed its end; commands that are still to be read are read first.
      if (count > 0 && descriptor.revents & (POLLHUP | POLLERR)) {
        usleep(200 * 1000);
        _exit(0);
      }
    }
  }).detach();
}

}  // namespace hloopt

// Arguments: descriptors of the memory, of the commands and of the replies; the parent; threads; the seed.
int main(int count, char** arguments) {
  using namespace hloopt;
  if (count != 7) return 2;
  const int memory_descriptor = atoi(arguments[1]), input = atoi(arguments[2]), output = atoi(arguments[3]);
  const pid_t parent = (pid_t)atoi(arguments[4]);
  const int threads = hloopt_is_checked ? 1 : atoi(arguments[5]);
  seed = strtoull(arguments[6], nullptr, 10);
  void* const page = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, memory_descriptor, 0);
  if (page == MAP_FAILED) return 2;
  control = (Control*)page;
  follow_parent(input, parent);
  catch_signals();
  static Commands commands(input);
  Memory memory(memory_descriptor);
  Pool pool(threads);
  serve(commands, memory, pool, output);
}
