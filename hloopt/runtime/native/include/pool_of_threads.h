// Threads that wait for work, shared by all runs of a program.
#pragma once
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace hloopt {

class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { work(); });
  }
  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    begun_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  int threads() const { return (int)workers_.size() + 1; }

  void run(long long count, const std::function<void(long long, long long)>& body) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      body_ = &body;
      count_ = count;
      // A few ranges for each thread, so that a slow one does not hold up the others.
      step_ = (count + 4 * threads() - 1) / (4 * threads());
      next_ = 0;
      busy_ = (int)workers_.size();
      ++round_;
    }
    begun_.notify_all();
    take();
    std::unique_lock<std::mutex> lock(mutex_);
    done_.wait(lock, [this] { return busy_ == 0; });
  }

 private:
  void take() {
    for (;;) {
      const long long begin = next_.fetch_add(step_);
      if (begin >= count_) return;
      (*body_)(begin, begin + step_ < count_ ? begin + step_ : count_);
    }
  }
  void work() {
    long long seen = 0;
    for (;;) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        begun_.wait(lock, [&] { return ending_ || round_ != seen; });
        if (ending_) return;
        seen = round_;
      }
      take();
      std::lock_guard<std::mutex> lock(mutex_);
      if (--busy_ == 0) done_.notify_one();
    }
  }

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable begun_, done_;
  const std::function<void(long long, long long)>* body_ = nullptr;
  std::atomic<long long> next_{0};
  long long count_ = 0, step_ = 1, round_ = 0;
  int busy_ = 0;
  bool ending_ = false;
};

inline void run_shared(int threads, long long count, const std::function<void(long long, long long)>& body) {
  static Pool pool(threads);
  pool.run(count, body);
}

}  // namespace hloopt
