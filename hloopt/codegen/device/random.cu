// Block functions of counter-based random numbers (Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3", 2011), with the constants of Random123.

//@ Words2 struct
// Two words of 32 bits.
struct Words2 { unsigned word[2]; };

//@ Words4 struct
// Four words of 32 bits.
struct Words4 { unsigned word[4]; };

//@ threefry2x32 loops: Words2
// Threefry2x32 with 20 rounds: a counter of two words to two random words.
__device__ Words2 threefry2x32(unsigned key0, unsigned key1, unsigned counter0, unsigned counter1) {
  const unsigned key[3] = {key0, key1, 0x1bd11bdau ^ key0 ^ key1};
  const unsigned rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  unsigned x0 = counter0 + key0, x1 = counter1 + key1;
#pragma unroll
  for (unsigned group = 0; group < 5; ++group) {
#pragma unroll
    for (unsigned round = 0; round < 4; ++round) {
      unsigned distance = rotations[group % 2][round];
      x0 += x1;
      x1 = (x1 << distance | x1 >> (32 - distance)) ^ x0;
    }
    x0 += key[(group + 1) % 3];
    x1 += key[(group + 2) % 3] + group + 1;
  }
  return Words2{{x0, x1}};
}

//@ philox4x32 loops: Words4
// Philox4x32 with 10 rounds: a counter of four words to four random words.
__device__ Words4 philox4x32(unsigned key0, unsigned key1, unsigned counter0, unsigned counter1,
                             unsigned counter2, unsigned counter3) {
  unsigned x0 = counter0, x1 = counter1, x2 = counter2, x3 = counter3;
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    unsigned long long first = 0xd2511f53ull * x0, second = 0xcd9e8d57ull * x2;
    x0 = (unsigned)(second >> 32) ^ x1 ^ key0;
    x1 = (unsigned)second;
    x2 = (unsigned)(first >> 32) ^ x3 ^ key1;
    x3 = (unsigned)first;
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return Words4{{x0, x1, x2, x3}};
}
