// The handlers by which XLA's programs call ours: custom calls with the number of an entry.
#include <stdint.h>

#include <unordered_map>
#include <vector>

#include "entry.h"
#include "xla/ffi/api/c_api.h"

namespace {

struct Known {
  hloopt::Entry* entry;
  int64_t leases;
};

// What an executable of XLA's has while it exists: the entry is there as long as anybody may call it.
struct Lease {
  int64_t number;
  hloopt::Entry* entry;
};

std::mutex guard;
std::unordered_map<int64_t, Known>* const entries = new std::unordered_map<int64_t, Known>;

void give_back(void* object) {
  const Lease* lease = (const Lease*)object;
  {
    std::lock_guard<std::mutex> lock(guard);
    --entries->at(lease->number).leases;
  }
  delete lease;
}

// The type of leases has a number in each runtime: plug-ins have one of their own.
XLA_FFI_TypeId* lease_type(const XLA_FFI_Api* api) {
  static std::unordered_map<const XLA_FFI_Api*, XLA_FFI_TypeId>* const types =
      new std::unordered_map<const XLA_FFI_Api*, XLA_FFI_TypeId>;
  static const XLA_FFI_TypeInfo info = {XLA_FFI_TypeInfo_STRUCT_SIZE, nullptr, give_back};
  std::lock_guard<std::mutex> lock(guard);
  const auto made = types->insert({api, XLA_FFI_UNKNOWN_TYPE_ID});
  if (made.second) {
    static const char name[] = "hloopt_lease";
    XLA_FFI_Type_Register_Args args = {
        XLA_FFI_Type_Register_Args_STRUCT_SIZE, nullptr, {name, sizeof name - 1}, &made.first->second, &info};
    if (XLA_FFI_Error* failed = api->XLA_FFI_Type_Register(&args)) {
      // What uses the type next says that it is not known.
      XLA_FFI_Error_Destroy_Args gone = {XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, nullptr, failed};
      api->XLA_FFI_Error_Destroy(&gone);
    }
  }
  return &made.first->second;
}

XLA_FFI_Error* error(const XLA_FFI_CallFrame* frame, const char* message) {
  XLA_FFI_Error_Create_Args args = {
      XLA_FFI_Error_Create_Args_STRUCT_SIZE, nullptr, message, XLA_FFI_Error_Code_INTERNAL};
  return frame->api->XLA_FFI_Error_Create(&args);
}

// Whether XLA asks what the handler is, and then says it.
bool is_asked(const XLA_FFI_CallFrame* frame, XLA_FFI_TypeId state) {
  if (!frame->extension_start || frame->extension_start->type != XLA_FFI_Extension_Metadata) return false;
  XLA_FFI_Metadata* about = ((XLA_FFI_Metadata_Extension*)frame->extension_start)->metadata;
  about->api_version.major_version = XLA_FFI_API_MAJOR;
  about->api_version.minor_version = XLA_FFI_API_MINOR;
  about->traits = 0;
  about->state_type_id = state;
  return true;
}

std::vector<void*> addresses(int64_t count, void* const* buffers) {
  std::vector<void*> made(count);
  for (int64_t i = 0; i < count; ++i) made[i] = ((XLA_FFI_Buffer*)buffers[i])->data;
  return made;
}

XLA_FFI_Error* enter(const XLA_FFI_CallFrame* frame, const std::vector<void*>& inputs) {
  XLA_FFI_State_Get_Args state = {};
  state.struct_size = XLA_FFI_State_Get_Args_STRUCT_SIZE;
  state.ctx = frame->ctx;
  state.stage = XLA_FFI_ExecutionStage_INSTANTIATE;
  state.type_id = lease_type(frame->api);
  if (XLA_FFI_Error* failed = frame->api->XLA_FFI_State_Get(&state)) return failed;
  const std::vector<void*> results = addresses(frame->rets.size, frame->rets.rets);
  char failure[4096];
  const bool failed =
      hloopt::enter(((const Lease*)state.state)->entry, inputs.data(), results.data(), failure, sizeof failure);
  return failed ? error(frame, failure) : nullptr;
}

}  // namespace

// Entries have numbers that say what they compute, so that a program XLA has cached finds them.
extern "C" void hloopt_register(int64_t number, hloopt::Entry* entry) {
  std::lock_guard<std::mutex> lock(guard);
  (*entries)[number] = {entry, 0};
}

// Makes an entry unknown, unless an executable may call it; whether it did.
extern "C" int hloopt_forget(int64_t number) {
  std::lock_guard<std::mutex> lock(guard);
  const auto at = entries->find(number);
  if (at == entries->end() || at->second.leases) return 0;
  entries->erase(at);
  return 1;
}

extern "C" XLA_FFI_Error* hloopt_instantiate(XLA_FFI_CallFrame* frame) {
  XLA_FFI_TypeId* type = lease_type(frame->api);
  if (is_asked(frame, *type)) return nullptr;
  if (frame->attrs.size != 1) return error(frame, "a call of hloopt's has the number of an entry");
  Lease* lease = nullptr;
  {
    std::lock_guard<std::mutex> lock(guard);
    const int64_t number = *(const int64_t*)((const XLA_FFI_Scalar*)frame->attrs.attrs[0])->value;
    const auto at = entries->find(number);
    if (at != entries->end()) {
      ++at->second.leases;
      lease = new Lease{number, at->second.entry};
    }
  }
  if (!lease) return error(frame, "hloopt has not compiled this program in this process");
  XLA_FFI_State_Set_Args state = {};
  state.struct_size = XLA_FFI_State_Set_Args_STRUCT_SIZE;
  state.ctx = frame->ctx;
  state.stage = XLA_FFI_ExecutionStage_INSTANTIATE;
  state.type_id = type;
  state.state = lease;
  XLA_FFI_Error* failed = frame->api->XLA_FFI_State_Set(&state);
  if (failed) give_back(lease);
  return failed;
}

extern "C" XLA_FFI_Error* hloopt_native(XLA_FFI_CallFrame* frame) {
  if (is_asked(frame, XLA_FFI_UNKNOWN_TYPE_ID)) return nullptr;
  return enter(frame, addresses(frame->args.size, frame->args.args));
}

// The entry has two inputs more: the stream (null on a CPU, which has none), and the number of the device.
extern "C" XLA_FFI_Error* hloopt_on_stream(XLA_FFI_CallFrame* frame) {
  if (is_asked(frame, XLA_FFI_UNKNOWN_TYPE_ID)) return nullptr;
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
