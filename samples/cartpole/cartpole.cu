// The yardstick: naive.hlo as one writes it by hand, in one launch.
//
// A thread has an environment, from the first step to the last, in registers.  Keys of 32 steps at a time are
// made by the 32 lanes of a warp, which hand them around; the pushes of those steps do not wait for the state, so
// they are drawn first, into the bits of a word.  A fresh state is drawn only where an episode ends: the generator
// is a function of key and counter, so numbers that nobody looks at need not be made.
// Arithmetic is in the order of the program; blocks have a multiple of 32 threads.

struct Words {
  unsigned a, b;
};

__device__ __forceinline__ unsigned turned(unsigned word, int by) {
  return (word << by) | (word >> (32 - by));
}

// Threefry2x32 with 20 rounds (Salmon et al. 2011).
__device__ __forceinline__ Words threefry(Words key, unsigned high, unsigned low) {
  const unsigned keys[3] = {key.a, key.b, key.a ^ key.b ^ 0x1BD11BDAu};
  const int turns[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  unsigned x = high + keys[0], y = low + keys[1];
#pragma unroll
  for (unsigned group = 0; group < 5; group++) {
#pragma unroll
    for (int round = 0; round < 4; round++) {
      x += y;
      y = turned(y, turns[group % 2][round]) ^ x;
    }
    x += keys[(group + 1) % 3];
    y += keys[(group + 2) % 3] + group + 1;
  }
  return {x, y};
}

__device__ __forceinline__ Words from_lane(Words words, int lane) {
  return {__shfl_sync(0xffffffffu, words.a, lane), __shfl_sync(0xffffffffu, words.b, lane)};
}

// jax.random.uniform between -0.05 and 0.05.
__device__ __forceinline__ float start(Words key, unsigned counter) {
  const Words drawn = threefry(key, 0, counter);
  const float unit = __int_as_float((int)(((drawn.a ^ drawn.b) >> 9) | 0x3F800000u)) - 1.0f;
  return fmaxf(unit * 0.1f + -0.05f, -0.05f);
}

extern "C" __global__ void __launch_bounds__(128) cartpole(
    const unsigned* __restrict__ key, float* __restrict__ state, int* __restrict__ alive,
    int* __restrict__ ended, int count, int steps) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  const int lane = threadIdx.x % 32;
  const unsigned environment = index;
  const Words seed = {key[0], key[1]};
  float x = start(seed, environment);
  float v = start(seed, environment + count);
  float angle = start(seed, environment + 2u * count);
  float spin = start(seed, environment + 3u * count);
  int age = 0, episodes = 0;
  for (int base = 0; base < steps; base += 32) {
    const Words folded = threefry(seed, 0, base + lane);
    const Words to_push = threefry(folded, 0, 0), to_start = threefry(folded, 0, 1);
    const int batch = min(32, steps - base);
    unsigned pushes = 0;
#pragma unroll 4
    for (int step = 0; step < 32; step++) {
      const Words drawn = threefry(from_lane(to_push, step), 0, environment);
      pushes |= (~(drawn.a ^ drawn.b) >> 31) << step;
    }
    for (int step = 0; step < batch; step++) {
      const Words fresh = from_lane(to_start, step);
      const float force = (pushes >> step) & 1 ? 10.0f : -10.0f;
      float sine, cosine;
      sincosf(angle, &sine, &cosine);
      const float shared = (force + 0.05f * spin * spin * sine) / 1.1f;
      const float turning = (9.8f * sine - cosine * shared) /
                            (0.5f * (1.33333337f - 0.1f * cosine * cosine / 1.1f));
      const float moving = shared - 0.05f * turning * cosine / 1.1f;
      x = x + 0.02f * v;
      v = v + 0.02f * moving;
      angle = angle + 0.02f * spin;
      spin = spin + 0.02f * turning;
      age++;
      if (x < -2.4f || x > 2.4f || angle < -0.20943952f || angle > 0.20943952f) {
        x = start(fresh, environment);
        v = start(fresh, environment + count);
        angle = start(fresh, environment + 2u * count);
        spin = start(fresh, environment + 3u * count);
        age = 0;
        episodes++;
      }
    }
  }
  if (index < count) {
    state[index] = x;
    state[index + count] = v;
    state[index + 2 * count] = angle;
    state[index + 3 * count] = spin;
    alive[index] = age;
    ended[index] = episodes;
  }
}
