/*
function = "row_max"
grid = ["ceil_div(rows, 4)"]
block = ["128"]
scalars = ["rows", "columns"]
hlo = '''
HloModule row_max
larger {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}
ENTRY e {
  x = f32[$rows,$columns] parameter(0)
  least = f32[] parameter(1)
  ROOT most = f32[$rows] reduce(x, least), dimensions={1}, to_apply=larger
}
'''
*/

__device__ float larger(float a, float b) { return a != a || b != b ? a + b : fmaxf(a, b); }

// A warp has a row.
extern "C" __global__ void __launch_bounds__(128) row_max(
    const float* __restrict__ x, const float* __restrict__ least, float* __restrict__ most,
    int rows, int columns) {
  const int row = blockIdx.x * 4 + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  float value = least[0];
  if (row < rows) {
    for (int i = lane; i < columns; i += 32) value = larger(value, x[row * columns + i]);
  }
  for (int distance = 16; distance; distance /= 2) {
    value = larger(value, __shfl_xor_sync(0xffffffffu, value, distance));
  }
  if (lane == 0 && row < rows) most[row] = value;
}
