#ifdef WITH_FFI
#include "xla/ffi/api/ffi.h"

static xla::ffi::Error run(cudaStream_t stream, $ffi_parameters) {
  const cudaError_t status = ${name}_launch($ffi_pointers, stream);
  if (status != cudaSuccess) return xla::ffi::Error::Internal(cudaGetErrorString(status));
  return xla::ffi::Error::Success();
}

extern "C" XLA_FFI_DEFINE_HANDLER_SYMBOL(
    ${name}_ffi, run,
    xla::ffi::Ffi::Bind().Ctx<xla::ffi::PlatformStream<cudaStream_t>>()$ffi_binding);
#endif

