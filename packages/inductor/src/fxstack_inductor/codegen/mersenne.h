/* Random booleans as eager draws them: MT19937 (Matsumoto and Nishimura, 1998), two words an element, the first one high;
   an element is 1 where the low 53 bits, as a fraction, are below p. The words of a block are made and tempered as
   vectors; eager makes them one at a time. */
#define MT_N 624
#define MT_M 397

static inline uint32_t mt_mix(uint32_t u, uint32_t v) {
  uint32_t y = (u & 0x80000000u) | (v & 0x7fffffffu);
  return (y >> 1) ^ (-(v & 1u) & 0x9908b0dfu);
}

static void mt_next_block(uint32_t* s) {
  uint32_t fresh[MT_N];
  #pragma omp simd
  for (int64_t i = 0; i < MT_N - MT_M; i++) fresh[i] = s[i + MT_M] ^ mt_mix(s[i], s[i + 1]);
  #pragma omp simd safelen(64)
  for (int64_t i = MT_N - MT_M; i < MT_N - 1; i++)
    fresh[i] = fresh[i + MT_M - MT_N] ^ mt_mix(s[i], s[i + 1]);
  fresh[MT_N - 1] = fresh[MT_M - 1] ^ mt_mix(s[MT_N - 1], fresh[0]);
  __builtin_memcpy(s, fresh, sizeof fresh);
}

static void mt_temper(const uint32_t* s, uint32_t* out, int64_t count) {
  #pragma omp simd
  for (int64_t i = 0; i < count; i++) {
    uint32_t y = s[i];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680u;
    y ^= (y << 15) & 0xefc60000u;
    out[i] = y ^ (y >> 18);
  }
}

/* The serialised state of torch's CPU generator: what is used of it here. */
typedef struct { uint64_t seed; int32_t left; int32_t seeded; uint64_t next; uint64_t state[MT_N]; } mt_pod;

void mersenne_bernoulli(mt_pod* pod, float* out, int64_t n, uint64_t threshold) {
  const uint64_t mask = (UINT64_C(1) << 53) - 1;
  uint32_t s[MT_N], words[MT_N + 1];
  for (int64_t i = 0; i < MT_N; i++) s[i] = (uint32_t)pod->state[i];
  int64_t next = pod->next, left = pod->left - 1, kept = 0, done = 0;
  while (done < n) {
    if (left == 0) { mt_next_block(s); next = 0; left = MT_N; }
    int64_t wanted = 2 * (n - done) - kept, count = wanted < left ? wanted : left;
    mt_temper(s + next, words + kept, count);
    next += count; left -= count;
    int64_t pairs = (kept + count) / 2;
    #pragma omp simd
    for (int64_t i = 0; i < pairs; i++) {
      uint64_t value = ((uint64_t)words[2 * i] << 32 | words[2 * i + 1]) & mask;
      out[done + i] = value < threshold ? 1.0f : 0.0f;
    }
    done += pairs;
    kept = (kept + count) & 1;
    if (kept) words[0] = words[2 * pairs];
  }
  for (int64_t i = 0; i < MT_N; i++) pod->state[i] = s[i];
  pod->next = next;
  pod->left = left + 1;
}
