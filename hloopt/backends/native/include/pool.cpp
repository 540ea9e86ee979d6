// Threads that wait for work: one pool for all native programs of a process, in a separate object.  A library that
// `hloopt build` makes has one of its own: so nothing here needs the C++ library at run time.
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include <atomic>
#include <new>

namespace {

typedef void Range(void* context, long long begin, long long end);

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

long long nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

// A worker that has nothing to do looks for work this long before it sleeps: waking it takes as long.
const long long kPatience = 20000;

class Pool {
 public:
  int run(int threads, long long count, Range* body, void* context, int (*stop)(void*), void* stop_context) {
    // A program that runs beside another has one thread; so do loops inside of shared ones.
    if (threads < 2 || count < 2 || is_running_.exchange(true))
      return by_itself(count, body, context, stop, stop_context);
    const int stopped = shared(threads, count, body, context, stop, stop_context);
    is_running_ = false;
    return stopped;
  }

 private:
  struct Worker {
    Pool* pool;
    int number;
  };
  int shared(int threads, long long count, Range* body, void* context, int (*stop)(void*), void* stop_context) {
    // Where the system gives no more threads, those there are do all of the work.
    while (workers_ < threads - 1 && hire()) {}
    if (workers_ < threads - 1) threads = workers_ + 1;
    if (threads < 2) return by_itself(count, body, context, stop, stop_context);
    body_ = body;
    context_ = context;
    count_ = count;
    // A few ranges for each thread, so that a slow one does not hold up the others.
    step_ = (count + 4 * threads - 1) / (4 * threads);
    next_ = 0;
    wanted_ = threads - 1;
    is_open_ = true;
    ++round_;
    if (sleeping_ > 0) {
      pthread_mutex_lock(&mutex_);
      pthread_mutex_unlock(&mutex_);
      pthread_cond_broadcast(&begun_);
    }
    int stopped = 0;
    while (!stopped && take()) stopped = stop(stop_context);
    if (stopped) next_ = count;
    is_open_ = false;
    for (int tries = 0; active_ != 0; ++tries) {
      if (tries < 4096) pause();
      else sched_yield();
    }
    return stopped;
  }
  // std::thread would end the process where no thread is available: this is compiled without exceptions.
  bool hire() {
    Worker* worker = (Worker*)malloc(sizeof(Worker));
    if (!worker) return false;
    *worker = {this, workers_};
    pthread_t thread;
    if (pthread_create(&thread, nullptr, begin_work, worker) != 0) {
      free(worker);
      return false;
    }
    pthread_detach(thread);
    ++workers_;
    return true;
  }
  static void* begin_work(void* given) {
    const Worker worker = *static_cast<Worker*>(given);
    free(given);
    worker.pool->work(worker.number);
    return nullptr;
  }
  int by_itself(long long count, Range* body, void* context, int (*stop)(void*), void* stop_context) {
    const long long step = (count + 63) / 64;
    for (long long begin = 0; begin < count; begin += step) {
      body(context, begin, begin + step < count ? begin + step : count);
      if (int stopped = stop(stop_context)) return stopped;
    }
    return 0;
  }
  bool take() {
    const long long begin = next_.fetch_add(step_);
    if (begin >= count_) return false;
    body_(context_, begin, begin + step_ < count_ ? begin + step_ : count_);
    return true;
  }
  // A worker says that it is active before it looks whether there is work, and the runner closes before it
  // looks who is active: so either the worker sees that it is late, or the runner waits for it.
  void work(int number) {
    long long seen = 0;
    for (;;) {
      wait(seen);
      seen = round_;
      ++active_;
      if (is_open_ && number < wanted_)
        while (take()) {}
      --active_;
    }
  }
  void wait(long long seen) {
    const long long start = nanoseconds();
    do {
      for (int i = 0; i < 64; ++i) {
        if (round_ != seen) return;
        pause();
      }
    } while (nanoseconds() - start < kPatience);
    pthread_mutex_lock(&mutex_);
    ++sleeping_;
    while (round_ == seen) pthread_cond_wait(&begun_, &mutex_);
    --sleeping_;
    pthread_mutex_unlock(&mutex_);
  }

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t begun_ = PTHREAD_COND_INITIALIZER;
  std::atomic<bool> is_running_{false};
  std::atomic<long long> next_{0}, round_{0};
  std::atomic<int> active_{0}, sleeping_{0}, wanted_{0};
  std::atomic<bool> is_open_{false};
  Range* body_ = nullptr;
  void* context_ = nullptr;
  long long count_ = 0, step_ = 1;
  int workers_ = 0;
};

// Never destroyed: its threads sleep until the process ends.  A process that forks leaves them behind, with the pool
// that they look at.
Pool* pool = nullptr;
pthread_once_t made = PTHREAD_ONCE_INIT;

void make() {
  void* memory = malloc(sizeof(Pool));
  pool = memory ? new (memory) Pool : nullptr;
}

}  // namespace

extern "C" int hloopt_share(
    int threads, long long count, Range* body, void* context, int (*stop)(void*), void* stop_context) {
  pthread_once(&made, [] {
    make();
    pthread_atfork(nullptr, nullptr, make);
  });
  if (pool) return pool->run(threads, count, body, context, stop, stop_context);
  body(context, 0, count);
  return stop(stop_context);
}
