/* exp, tanh and erf in single precision, without branches. exp is used always: glibc's, as fast on ordinary numbers, takes a
   lane at a time where any is infinite, as every mask of a softmax makes it. tanh and erf are for C libraries without vector
   math of their own (glibc has them since 2.35; its versions were measured 10 to 25% faster than these).

   exp: x = n ln 2 + r with the Cody-Waite split of ln 2, then a polynomial in r (at most 1 ulp).
   tanh, erf: an odd polynomial near 0, and 1 - 2 / (exp(2x) + 1) or 1 - exp(-g(x)) beyond it (at most 2 ulp).
   The coefficients are least-maximum fits (Lawson's iteration) to float64 references. NaN stays NaN. */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

static inline float power_of_two(int32_t n) {
  union { int32_t i; float f; } v = {(n + 127) << 23};
  return v.f;
}

static inline float fast_expf(float x) {
  x = x > 89.0f ? 89.0f : x;
  x = x < -105.0f ? -105.0f : x;
  float n = __builtin_rintf(x * 1.44269504f);
  float r = FMA(n, 2.12194442e-4f, FMA(n, -0.693359375f, x));
  float p = 1.3814467238262296e-3f;
  p = FMA(p, r, 8.368780836462975e-3f);
  p = FMA(p, r, 4.166839271783829e-2f);
  p = FMA(p, r, 0.1666651964187622f);
  p = FMA(p, r, 0.4999999403953552f);
  p = FMA(p, r * r, r) + 1.0f;
  /* in two steps, so that results at both ends of the range are rounded once */
  int32_t whole = (int32_t)n, half = whole >> 1;
  return p * power_of_two(half) * power_of_two(whole - half);
}

static inline float fast_tanhf(float x) {
  float t = __builtin_fabsf(x), s = x * x;
  float p = -6.193582434207201e-3f;
  p = FMA(p, s, 2.1010762080550194e-2f);
  p = FMA(p, s, -5.383582040667534e-2f);
  p = FMA(p, s, 0.13332395255565643f);
  p = FMA(p, s, -0.3333330750465393f);
  p = FMA(p, s, -1.0460053934124858e-9f);
  float small = FMA(p, t, t);
  float large = 1.0f - 2.0f / (fast_expf(t + t) + 1.0f);
  return __builtin_copysignf(t < 0.55f ? small : large, x);
}

static inline float fast_erff(float x) {
  float t = __builtin_fabsf(x), s = x * x;
  float p = -5.957428365945816e-4f;
  p = FMA(p, s, 4.986667074263096e-3f);
  p = FMA(p, s, -2.67622172832489e-2f);
  p = FMA(p, s, 0.1128169596195221f);
  p = FMA(p, s, -0.3761248290538788f);
  p = FMA(p, s, 0.12837915122509003f);
  float small = FMA(p, x, x);
  float c = t > 3.95f ? 3.95f : t;
  float g = 1.0870054211409297e-5f;
  g = FMA(g, c, -3.191987634636462e-4f);
  g = FMA(g, c, 3.6278478801250458e-3f);
  g = FMA(g, c, -2.373126707970963e-2f);
  g = FMA(g, c, 0.10620126128196716f);
  g = FMA(g, c, 0.6351727843284607f);
  g = FMA(g, c, 1.128643274307251f);
  float large = 1.0f - fast_expf(-(g * c));
  return t < 0.92f ? small : __builtin_copysignf(large, x);
}
#ifndef FXSTACK_EXACT_MATH
#define expf fast_expf
#if !defined(FXSTACK_LIBMVEC) || FXSTACK_LIBMVEC < 235
#define tanhf fast_tanhf
#define erff fast_erff
#endif
#endif
