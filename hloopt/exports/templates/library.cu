#ifndef __CUDACC_RTC__
#include <cuda_runtime.h>
#include <cstring>
#endif

$source
#ifndef __CUDACC_RTC__
extern "C" cudaError_t ${name}_launch($parameters, void* workspace, cudaStream_t stream) {
  cudaError_t status = cudaSuccess;
  (void)workspace;
$launches
  return status;
}

$handler
#endif
