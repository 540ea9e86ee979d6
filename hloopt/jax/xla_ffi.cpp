// The handlers by which XLA's programs call ours: custom calls with the number of an entry.
#include <stdint.h>

#include <unordered_map>
#include <vector>

#include "entry.h"
#include "xla/ffi/api/c_api.h"

namespace {

std::mutex guard;
std::unordered_map<int64_t, hloopt::Entry*>* const entries = new std::unordered_map<int64_t, hloopt::Entry*>;

hloopt::Entry* found(int64_t number) {
  std::lock_guard<std::mutex> lock(guard);
  const auto at = entries->find(number);
  return at == entries->end() ? nullptr : at->second;
}

std::vector<void*> addresses(int64_t count, void* const* buffers) {
  std::vector<void*> made(count);
  for (int64_t i = 0; i < count; ++i) made[i] = ((XLA_FFI_Buffer*)buffers[i])->data;
  return made;
}

XLA_FFI_Error* error(const XLA_FFI_CallFrame* frame, const char* message) {
  XLA_FFI_Error_Create_Args args = {
      XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, message, XLA_FFI_Error_Code_INTERNAL};
  return frame->api->XLA_FFI_Error_Create(&args);
}

}  // namespace

extern "C" bool hloopt_is_known(int64_t number) { return found(number) != nullptr; }

// Entries have numbers that say what they compute, so that a program XLA has cached finds them.
extern "C" void hloopt_register(int64_t number, hloopt::Entry* entry) {
  std::lock_guard<std::mutex> lock(guard);
  if (entry) (*entries)[number] = entry;
  else entries->erase(number);
}

namespace {

// Whether XLA asks what the handler is, and then says it.
bool is_asked(const XLA_FFI_CallFrame* frame) {
  if (!frame->extension_start || frame->extension_start->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata* about = ((XLA_FFI_Metadata_Extension*)frame->extension_start)->metadata;
  about->api_version.major_version = XLA_FFI_API_MAJOR;
  about->api_version.minor_version = XLA_FFI_API_MINOR;
  about->traits = 0;
  about->state_type_id = XLA_FFI_UNKNOWN_TYPE_ID;
  return true;
}

XLA_FFI_Error* enter(const XLA_FFI_CallFrame* frame, const std::vector<void*>& inputs) {
  if (frame->attrs.size != 1) return error(frame, "a call of hloopt's has the number of an entry");
  const int64_t number = *(const int64_t*)((const XLA_FFI_Scalar*)frame->attrs.attrs[0])->value;
  hloopt::Entry* entry = found(number);
  if (!entry) return error(frame, "hloopt has not compiled this program in this process");
  const std::vector<void*> results = addresses(frame->rets.size, frame->rets.rets);
  char failure[4096];
  return hloopt::enter(entry, inputs.data(), results.data(), failure, sizeof failure) ? error(frame, failure)
                                                                                     : nullptr;
}

}  // namespace

extern "C" XLA_FFI_Error* hloopt_native(XLA_FFI_CallFrame* frame) {
  if (is_asked(frame)) return nullptr;
  return enter(frame, addresses(frame->args.size, frame->args.args));
}

// The entry has two inputs more: the stream (null on a CPU, which has none), and the number of the device.
extern "C" XLA_FFI_Error* hloopt_on_stream(XLA_FFI_CallFrame* frame) {
  if (is_asked(frame)) return nullptr;
  std::vector<void*> inputs = addresses(frame->args.size, frame->args.args);
  XLA_FFI_Stream_Get_Args stream = {XLA_FFI_Stream_Get_Args_STRUCT_SIZE, nullptr, frame->ctx, nullptr};
  if (XLA_FFI_Error* failed = frame->api->XLA_FFI_Stream_Get(&stream)) {
    XLA_FFI_Error_Destroy_Args gone = {XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, failed};
    frame->api->XLA_FFI_Error_Destroy(&gone);
    stream.stream = nullptr;
  }
  XLA_FFI_DeviceOrdinal_Get_Args device = {XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE, nullptr, frame->ctx, 0};
  if (XLA_FFI_Error* failed = frame->api->XLA_FFI_DeviceOrdinal_Get(&device)) return failed;
  inputs.push_back(stream.stream);
  inputs.push_back((void*)(intptr_t)device.device_ordinal);
  return enter(frame, inputs);
}
