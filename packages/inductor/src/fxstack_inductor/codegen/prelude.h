/* Shared by all generated kernels: types, half precision, vector math, reductions. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

typedef uint8_t bool8;
typedef uint16_t bf16;
#ifdef __FLT16_MAX__
typedef _Float16 f16;
#endif

extern int omp_get_thread_num(void);

#define VECTOR1(NAME) \
  __attribute__((simd("notinbranch"))) double NAME(double); \
  __attribute__((simd("notinbranch"))) float NAME##f(float);
#define VECTOR2(NAME) \
  __attribute__((simd("notinbranch"))) double NAME(double, double); \
  __attribute__((simd("notinbranch"))) float NAME##f(float, float);
#if defined(FXSTACK_LIBMVEC) && !defined(FXSTACK_EXACT_MATH)
VECTOR1(exp) VECTOR1(log) VECTOR1(sin) VECTOR1(cos) VECTOR2(pow)
#endif
#if FXSTACK_LIBMVEC >= 235 && !defined(FXSTACK_EXACT_MATH)
VECTOR1(exp2) VECTOR1(expm1) VECTOR1(log2) VECTOR1(log10) VECTOR1(log1p) VECTOR1(tan)
VECTOR1(sinh) VECTOR1(cosh) VECTOR1(tanh) VECTOR1(asin) VECTOR1(acos) VECTOR1(atan)
VECTOR1(asinh) VECTOR1(acosh) VECTOR1(atanh) VECTOR1(erf) VECTOR1(erfc)
VECTOR2(atan2) VECTOR2(hypot)
#endif

static inline float bf16_load(bf16 x) {
  union { uint32_t u; float f; } v = {(uint32_t)x << 16};
  return v.f;
}

/* Round to nearest, ties to even; every NaN becomes the quiet NaN 0x7fc0, as in eager. */
static inline bf16 bf16_store(float x) {
  union { float f; uint32_t u; } v = {x};
  uint32_t rounded = (v.u + 0x7fffu + ((v.u >> 16) & 1u)) >> 16;
  return x != x ? 0x7fc0 : (bf16)rounded;
}

#define FLOAT_DIVISION(T, S) \
  static inline T remainder_##T(T a, T b) { \
    T r = fmod##S(a, b); \
    return (r != 0 && (b < 0) != (r < 0)) ? r + b : r; \
  } \
  static inline T floordiv_##T(T a, T b) { \
    if (b == 0) return a / b; \
    T r = fmod##S(a, b); \
    T q = (a - r) / b; \
    if (r != 0 && (b < 0) != (r < 0)) q -= 1; \
    if (q == 0) return copysign##S((T)0, a / b); \
    T f = floor##S(q); \
    return q - f > (T)0.5 ? f + 1 : f; \
  }
FLOAT_DIVISION(float, f)
FLOAT_DIVISION(double, )

#define INT_DIVISION(T) \
  static inline T floordiv_##T(T a, T b) { \
    T q = a / b; \
    return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q; \
  } \
  static inline T remainder_##T(T a, T b) { \
    T r = a % b; \
    return (r != 0 && (b < 0) != (r < 0)) ? r + b : r; \
  }
INT_DIVISION(int64_t)
INT_DIVISION(int32_t)
INT_DIVISION(int16_t)
INT_DIVISION(int8_t)
INT_DIVISION(uint8_t)

#define PRAGMA(text) _Pragma(#text)

/* Extremes that keep NaN, whichever side it is on. */
#define EXTREMES(T, LOW, HIGH) \
  static inline T max_##T(T a, T b) { return (a > b) | (a != a) ? a : b; } \
  static inline T min_##T(T a, T b) { return (a < b) | (a != a) ? a : b; } \
  PRAGMA(omp declare reduction(max_##T: T: omp_out = max_##T(omp_out, omp_in)) initializer(omp_priv = LOW)) \
  PRAGMA(omp declare reduction(min_##T: T: omp_out = min_##T(omp_out, omp_in)) initializer(omp_priv = HIGH))
EXTREMES(float, -INFINITY, INFINITY)
EXTREMES(double, -INFINITY, INFINITY)
EXTREMES(int64_t, INT64_MIN, INT64_MAX)
EXTREMES(int32_t, INT32_MIN, INT32_MAX)
EXTREMES(int16_t, INT16_MIN, INT16_MAX)
EXTREMES(int8_t, INT8_MIN, INT8_MAX)
EXTREMES(uint8_t, 0, UINT8_MAX)
static inline bool max_bool(bool a, bool b) { return a | b; }
static inline bool min_bool(bool a, bool b) { return a & b; }

/* An index that is checked: out of range sets the flag and reads element 0 instead. */
static inline int64_t check_index(int64_t i, int64_t size, bool valid, int32_t* error) {
  bool inside = (i >= 0) & (i < size);
  if (valid & !inside) *error = 1;
  return inside ? i : 0;
}
static inline int64_t wrap_index(int64_t i, int64_t size, bool valid, int32_t* error) {
  return check_index(i < 0 ? i + size : i, size, valid, error);
}
