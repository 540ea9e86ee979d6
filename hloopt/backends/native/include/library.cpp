// The functions of a built library's header; included by the unit that has its tables (library.h).
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// The driver sees the host's side of a context, which is its first member.
struct LIBRARY(context) {
  hloopt::Host host;
  char** places;
  char* memory;
  const char* data;
  void* mapped;
  int is_running;
  char message[512];
};

namespace {

using namespace hloopt;

typedef LIBRARY(context) Context;
typedef LIBRARY(status) Status;
typedef LIBRARY(tensor) Tensor;

const Status kOk = (Status)0, kInvalid = (Status)1, kNoMemory = (Status)2, kNoWeights = (Status)3,
             kProcessor = (Status)4, kEndless = (Status)5;

const char* const kTexts[] = {
    "no error",
    "an argument is not valid",
    "out of memory",
    "the file of weights cannot be read, or belongs to another build",
    "this processor lacks instructions that the library was compiled for",
    "a loop does not end",
};

Status say(Context* context, Status status, const char* format, ...) {
  va_list given;
  va_start(given, format);
  vsnprintf(context->message, sizeof context->message, format, given);
  va_end(given);
  return status;
}

// What `call` of native.h invokes: only loops that make no progress are called.  The run's host is this thread's.
void* stuck(void* loop, ...) {
  const char* endless = ((const Loop*)loop)->endless;
  if (!endless) return loop;
  say((Context*)helped, kEndless, endless, helped->iterations);
  return nullptr;
}

Status check(Context* context, const char* kind, const Tensor* tensors, long long count, const void* const* given) {
  for (long long i = 0; i < count; ++i) {
    const Tensor& one = tensors[i];
    if (!one.bytes) continue;
    if (!given || !given[i]) return say(context, kInvalid, "%s %lld (%s) is a null pointer", kind, i, one.name);
    if ((uintptr_t)given[i] % one.alignment)
      return say(context, kInvalid, "%s %lld (%s) is not aligned to %d bytes", kind, i, one.name, (int)one.alignment);
  }
  return kOk;
}

// The data of a file, or null.  It is mapped, so that processes share it and only what is read is loaded.
const char* map(const Library& library, const char* name, void** mapped) {
  const int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return nullptr;
  struct stat state;
  char head[sizeof library_head];
  void* found = MAP_FAILED;
  if (fstat(file, &state) == 0 && state.st_size == library.file_size &&
      pread(file, head, sizeof head, 0) == (ssize_t)sizeof head && memcmp(head, library.file_head, sizeof head) == 0)
    found = mmap(nullptr, library.file_size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (found == MAP_FAILED) return nullptr;
  *mapped = found;
  return (const char*)found + library_page;
}

int cores() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
#endif
  const long count = sysconf(_SC_NPROCESSORS_ONLN);
  return count > 0 ? (int)count : 1;
}

// Whether this processor has what the kernels were compiled for.
bool suits() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_cpu_init();
#define HAS(feature) && __builtin_cpu_supports(feature)
  return true LIBRARY_FEATURES(HAS);
#else
  return true;
#endif
}

void release(Context* context) {
  if (context->mapped) munmap(context->mapped, library.file_size);
  free(context->memory);
  free(context->places);
  free(context);
}

Status prepare(Context* context, int threads, const char* weights) {
  context->data = library.data;
  if (library.file_head) {
    context->data = map(library, weights, &context->mapped);
    if (!context->data) return kNoWeights;
  }
  // One more, since a plan may have nothing to place.
  context->places = (char**)calloc(library.place_count + 1, sizeof(char*));
  void* memory = nullptr;
  if (!context->places || posix_memalign(&memory, 256, library.memory + 256)) return kNoMemory;
  context->memory = (char*)memory;
  for (long long i = 0; i < library.place_count; ++i) {
    const Place& one = library.places[i];
    if (one.home == kData) context->places[i] = (char*)context->data + one.offset;
    if (one.home == kMemory) context->places[i] = context->memory + one.offset;
  }
  Host& host = context->host;
  host.release = []() -> void* { return nullptr; };
  host.take = [](void*) {};
  host.signals = [] { return 0; };
  host.invoke = stuck;
  host.forget = [](void*) {};
  host.stuck = (void**)library.loops;
  host.share = library.share;
  host.threads = threads > 0 ? threads : cores();
  return kOk;
}

}  // namespace

extern "C" {

int LIBRARY(input_count)(void) { return (int)library.inputs; }
int LIBRARY(result_count)(void) { return (int)library.results; }

const Tensor* LIBRARY(input)(int number) {
  return number < 0 || number >= library.inputs ? nullptr : library_inputs + number;
}

const Tensor* LIBRARY(result)(int number) {
  return number < 0 || number >= library.results ? nullptr : library_results + number;
}

const char* LIBRARY(build)(void) { return library.build; }

const char* LIBRARY(status_text)(Status status) {
  const unsigned number = (unsigned)status;
  return number < sizeof kTexts / sizeof *kTexts ? kTexts[number] : "unknown status";
}

const char* LIBRARY(message)(const Context* context) { return context ? context->message : ""; }

Status LIBRARY(create)(Context** made, int threads, const char* weights) {
  if (!made || threads < 0) return kInvalid;
  *made = nullptr;
  if (!suits()) return kProcessor;
  Context* context = (Context*)calloc(1, sizeof(Context));
  if (!context) return kNoMemory;
  const Status status = prepare(context, threads, weights);
  if (status == kOk) *made = context;
  else release(context);
  return status;
}

void LIBRARY(destroy)(Context* context) {
  if (context) release(context);
}

Status LIBRARY(run_arrays)(Context* context, const void* const* inputs, void* const* results) {
  if (!context) return kInvalid;
  // The message belongs to the run that is under way.
  if (__atomic_exchange_n(&context->is_running, 1, __ATOMIC_ACQUIRE)) return kInvalid;
  context->message[0] = 0;
  Status status = check(context, "input", library_inputs, library.inputs, inputs);
  if (status == kOk) status = check(context, "result", library_results, library.results, results);
  if (status == kOk) {
    const Binding* after = library.bound + library.before;
    bind(context->places, library.bound, after, inputs, results, context->data);
    if (library.run(context->places, &context->host)) status = kEndless;
    else hand_out(context->places, after, after + library.after, results);
  }
  __atomic_store_n(&context->is_running, 0, __ATOMIC_RELEASE);
  return status;
}

Status LIBRARY(run)(Context* context, const LIBRARY(inputs)* inputs, const LIBRARY(results)* results) {
  return LIBRARY(run_arrays)(context, (const void* const*)inputs, (void* const*)results);
}

}  // extern "C"
