// The process a program runs in: memory it shares with its parent, launches, and an account of what went wrong.
#include "launches.h"

#include "matrices.h"

namespace hloopt {

HLOOPT_MATRIX_STEPS(template struct)

__thread Worker* worker;
Control* control;
uint64_t first_stamp = 1;
uint64_t stamp_era;
uint64_t seed;

// ---------------------------------------------------------------- what went wrong

static std::atomic<bool> has_ended{false};

// The first to fail reports; the others wait for the end.
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

void fail_launch(const char* format, ...) {
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
    // -fsanitize=bounds, by whatever the processor has for a trap
    if (hloopt_is_checked && (number == SIGILL || number == SIGTRAP || number == SIGABRT))
      strcpy(control->text, "an index is outside of an array of the thread's own");
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
