// The page shared with the parent that says what runs, and what went wrong; commands and how they are read.
#pragma once
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>

#include "worker.h"

namespace hloopt {

enum Status : uint32_t { kFine = 0, kFinding = 1, kSignal = 2, kBroken = 3 };
constexpr int kFindingExit = 3;

// hloopt/backends/emulator/child.py reads the same layout.
struct Control {
  uint64_t begun;  // launches begun
  uint32_t is_launching, status;
  int32_t line, signal;
  uint32_t has_block, has_thread;
  uint32_t block[3], thread[3];
  char text[1024];
};

enum class Command : uint32_t {
  kSegment = 1, kAllocation, kWritten, kCopy, kFill, kLaunch, kExpectWritten, kSync
};

extern Control* control;

// Reads what the parent sends; ends the process where the parent is gone.
class Commands {
 public:
  explicit Commands(int descriptor) : descriptor_(descriptor) {}

  void read(void* target, size_t size) {
    char* to = (char*)target;
    while (size) {
      if (begin_ == end_) fill();
      const size_t part = size < end_ - begin_ ? size : end_ - begin_;
      memcpy(to, buffer_ + begin_, part);
      begin_ += part, to += part, size -= part;
    }
  }
  template <class T>
  T next() {
    T value;
    read(&value, sizeof value);
    return value;
  }

 private:
  void fill() {
    ssize_t count;
    do count = ::read(descriptor_, buffer_, sizeof buffer_);
    while (count < 0 && errno == EINTR);
    if (count <= 0) _exit(0);
    begin_ = 0, end_ = (size_t)count;
  }
  int descriptor_;
  size_t begin_ = 0, end_ = 0;
  char buffer_[1 << 16];
};

}  // namespace hloopt
