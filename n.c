/* Shared by all generated kernels: types, half precision, vector math, reductions. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* What vector loops call. GCC stops inlining where functions get large, and a loop with a call of a scalar function is no vector loop. */
#define INLINED static inline __attribute__((always_inline))

typedef uint8_t bool8;
typedef uint16_t bf16;

extern int omp_get_thread_num(void);
extern int omp_get_num_threads(void);
extern void GOMP_parallel(void (*)(void*), void*, unsigned, unsigned);

/* Every kernel stands between FUNCTION_BEGIN and FUNCTION_END, which change options of GCC for it. Functions above keep the options of the
   command line: GCC inlines no function that changes options into one that changes others.

   Predictive commoning (GCC 8 and later, at -O3) drops a store that a later iteration overwrites, and writes the last values back behind the
   loop. Where the loop is too short for that iteration to come, it writes back what it loaded before the loop: a store that the program does
   not have, to elements that another thread may have written in between. -fno-allow-store-data-races does not prevent that.

   Kernels without conditional loads are STRAIGHT. GCC writes what follows a question like x != x once for each answer, and vectors compute
   both: twice the work, and vector math that is given numbers outside of its domain takes one lane after the other (no-thread-jumps). Of
   answers that are known on one way to them it makes booleans that come from two places, which no vector can hold (no-tree-pre: bounds of
   bounds). A call whose result is used for one answer alone it moves there (no-tree-sink), and has vectors of that only for functions that
   it knows. */
#if defined(__GNUC__) && !defined(__clang__)
#define FUNCTION_BEGIN _Pragma("GCC push_options") _Pragma("GCC optimize(\"no-predictive-commoning\")")
#define FUNCTION_END _Pragma("GCC pop_options")
#define STRAIGHT _Pragma("GCC optimize(\"no-thread-jumps\", \"no-tree-pre\", \"no-tree-sink\")")
#else
#define FUNCTION_BEGIN
#define FUNCTION_END
#define STRAIGHT
#endif

/* Variables are defined in the first part of a file and declared in the others. */
#ifdef FXSTACK_LATER_PART
#define FXSTACK_SHARED extern
#else
#define FXSTACK_SHARED
#endif

/* Set into every integer made of a float: a compiler that knows the integer takes the float made of it for trunc(x), which keeps
   NaN, -0.0 and what is out of range. Nothing writes to it, which only a linker could tell. */
FXSTACK_SHARED int32_t fxstack_zero;
/* Added to every float that an integer is made of: a compiler that knows the float may be a certain number beyond the integers would
   convert that number itself, to the nearest integer, which is not what the processor does. */
FXSTACK_SHARED float fxstack_no_float;

#define MATH1(HOW, NAME) HOW double NAME(double); HOW float NAME##f(float);
#define MATH2(HOW, NAME) HOW double NAME(double, double); HOW float NAME##f(float, float);
#if defined(FXSTACK_LIBMVEC) && !defined(FXSTACK_EXACT_MATH)
#define VECTOR __attribute__((const, simd("notinbranch")))
MATH1(VECTOR, exp) MATH1(VECTOR, log) MATH1(VECTOR, sin) MATH1(VECTOR, cos) MATH2(VECTOR, pow)
#endif
#if FXSTACK_LIBMVEC >= 235 && !defined(FXSTACK_EXACT_MATH)
MATH1(VECTOR, exp2) MATH1(VECTOR, expm1) MATH1(VECTOR, log2) MATH1(VECTOR, log10) MATH1(VECTOR, log1p)
MATH1(VECTOR, tan) MATH1(VECTOR, sinh) MATH1(VECTOR, cosh) MATH1(VECTOR, tanh) MATH1(VECTOR, erf) MATH1(VECTOR, erfc)
MATH2(VECTOR, atan2) MATH2(VECTOR, hypot)
#define INVERSE VECTOR
#else
#define INVERSE __attribute__((const))
#endif
/* The compiler is told not to know these (``runtime/toolchain.py``) but for what an attribute says. */
MATH1(INVERSE, asin) MATH1(INVERSE, acos) MATH1(INVERSE, atan)
MATH1(INVERSE, asinh) MATH1(INVERSE, acosh) MATH1(INVERSE, atanh)

/* clang (14 at least) takes the inverse of a square root for no negative number, which it is for -0.0. */
#if defined(__clang__)
INLINED float inverse_rootf(float x) { return 1 / copysignf(sqrtf(x), x); }
INLINED double inverse_root(double x) { return 1 / copysign(sqrt(x), x); }
#else
INLINED float inverse_rootf(float x) { return 1 / sqrtf(x); }
INLINED double inverse_root(double x) { return 1 / sqrt(x); }
#endif

typedef union { float value; uint32_t bits; int32_t ordered; } float_word;
typedef union { double value; uint64_t bits; } double_word;

INLINED float bf16_load(bf16 x) { return (float_word){.bits = (uint32_t)x << 16}.value; }

/* Round to nearest, ties to even; every NaN becomes the quiet NaN 0x7fc0, as in eager. Vectors stay vectors of 32 bits. */
INLINED float bf16_round(float x) {
  uint32_t bits = (float_word){x}.bits;
  return x != x ? bf16_load(0x7fc0) : (float_word){.bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u}.value;
}
INLINED bf16 bf16_store(float x) { return (bf16)((float_word){bf16_round(x)}.bits >> 16); }

/* Half precision. GCC makes no vectors of conversions of its own type on x86. */
#if defined(__x86_64__) && (!defined(__clang__) || !defined(__FLT16_MAX__)) /* clang has the type since 15 */
typedef uint16_t f16;

INLINED float f16_load(f16 x) {
  uint32_t bits = (uint32_t)(x & 0x7fff) << 13;
  union { float f; uint32_t u; } small = {(float)(int32_t)(x & 0x3ff) * 0x1p-24f}, v = {.u = bits + (112u << 23)};
  v.u += bits >= (31u << 23) ? 112u << 23 : 0; /* infinities and NaN */
  v.u = bits < (1u << 23) ? small.u : v.u;
  v.u |= (uint32_t)(x & 0x8000) << 16;
  return v.f;
}

/* Round to nearest, ties to even; a NaN keeps its first bits and becomes quiet, as in eager. */
INLINED f16 f16_store(float x) {
  union { float f; uint32_t u; } v = {x}, small;
  uint32_t sign = v.u >> 16 & 0x8000, nan;
  v.u &= 0x7fffffff;
  small.f = v.f + 0.5f; /* the last bit of a half is the last bit of a float next to it */
  nan = 0x7e00 | (v.u >> 13 & 0x1ff);
  uint32_t rounded = (v.u + 0xfff + (v.u >> 13 & 1) - (112u << 23)) >> 13;
  rounded = v.u < (113u << 23) ? small.u - (126u << 23) : rounded;
  rounded = v.u >= 0x477ff000 ? 0x7c00 : rounded;
  rounded = v.u > 0x7f800000 ? nan : rounded;
  return (f16)(rounded | sign);
}
#elif defined(__FLT16_MAX__)
typedef _Float16 f16;

INLINED float f16_load(f16 x) { return (float)x; }
INLINED f16 f16_store(float x) { return (f16)x; }
#endif

/* Many at once, into and from arrays of floats whose length is a multiple of 16. GCC would make shorter vectors of these loops than of the
   loops between, and a processor waits where one vector is read from two that it has just written. */
#define CONVERTED(NAME, FROM, TO, ONE) \
  static inline void NAME(TO* restrict to, const FROM* restrict from, int64_t count) { \
    for (int64_t i = 0; i < count; i++) to[i] = ONE(from[i]); \
  }
#if defined(__x86_64__) && !defined(__clang__) && defined(__F16C__)
/* The processor's instructions. Without masks, the last numbers again where there are no multiple of what one takes. */
#ifdef __AVX512F__
#define HALVES 16
#define WIDENED_F16(x) __builtin_ia32_vcvtph2ps512_mask(x, (floats){}, -1, 4)
#define NARROWED_F16(x) __builtin_ia32_vcvtps2ph512_mask(x, 0, (halves){}, -1)
#define ZERO_EXTENDED(x) (words)__builtin_ia32_pmovzxwd512_mask(x, (integers){}, -1)
#define LOW_HALVES(x) __builtin_ia32_pmovdw512_mask((integers)(x), (halves){}, -1)
#else
#define HALVES 8
#define WIDENED_F16(x) __builtin_ia32_vcvtph2ps256(x)
#define NARROWED_F16(x) __builtin_ia32_vcvtps2ph256(x, 0)
#define ZERO_EXTENDED(x) __builtin_convertvector((unsigned_halves)(x), words)
#define LOW_HALVES(x) __builtin_convertvector((integers)(x), halves)
#endif
typedef float floats __attribute__((vector_size(4 * HALVES), aligned(4), may_alias));
typedef int integers __attribute__((vector_size(4 * HALVES), aligned(4), may_alias));
typedef uint32_t words __attribute__((vector_size(4 * HALVES), aligned(4), may_alias));
typedef short halves __attribute__((vector_size(2 * HALVES), aligned(2), may_alias));
typedef uint16_t unsigned_halves __attribute__((vector_size(2 * HALVES), aligned(2), may_alias));
#define WIDENED_BF16(x) (floats)(ZERO_EXTENDED(x) << 16)
#define NARROWED_BF16(x) narrowed_bf16(x)
INLINED halves narrowed_bf16(floats x) {
  words bits = (words)x, nan = (words)(x != x), rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return LOW_HALVES((rounded & ~nan) | (nan & 0x7fc0u));
}
#if defined(__AVX512BW__) && defined(__AVX512VL__)
#define FIRST(n) ((uint16_t)((1u << (n)) - 1))
#define READ_REST(WHOLE, ONE) \
  *(floats*)(to + i) = WHOLE(__builtin_ia32_loaddquhi256_mask((const short*)(from + i), (halves){}, FIRST(count - i)));
#define WRITE_REST(WHOLE, ONE) \
  __builtin_ia32_storedquhi256_mask((short*)(to + i), WHOLE(*(const floats*)(from + i)), FIRST(count - i));
#else
#define REST(FROMS, TOS, WHOLE, ONE) \
  if (count >= HALVES) \
    *(TOS*)(to + count - HALVES) = WHOLE(*(const FROMS*)(from + count - HALVES)); \
  else \
    for (; i < count; i++) to[i] = ONE(from[i]);
#define READ_REST(WHOLE, ONE) REST(halves, floats, WHOLE, ONE)
#define WRITE_REST(WHOLE, ONE) REST(floats, halves, WHOLE, ONE)
#endif
#define CONVERTED_HALVES(NAME, FROM, TO, FROMS, TOS, WHOLE, REST, ONE) \
  static inline void NAME(TO* restrict to, const FROM* restrict from, int64_t count) { \
    int64_t i = 0; \
    for (; i + HALVES <= count; i += HALVES) *(TOS*)(to + i) = WHOLE(*(const FROMS*)(from + i)); \
    if (i == count) return; \
    REST(WHOLE, ONE) \
  }
#define CONVERSIONS(T, WIDENED, NARROWED) \
  CONVERTED_HALVES(read_##T, T, float, halves, floats, WIDENED, READ_REST, T##_load) \
  CONVERTED_HALVES(write_##T, float, T, floats, halves, NARROWED, WRITE_REST, T##_store)
CONVERSIONS(f16, WIDENED_F16, NARROWED_F16) CONVERSIONS(bf16, WIDENED_BF16, NARROWED_BF16)
#else
CONVERTED(read_bf16, bf16, float, bf16_load) CONVERTED(write_bf16, float, bf16, bf16_store)
#if defined(__x86_64__) || defined(__FLT16_MAX__)
CONVERTED(read_f16, f16, float, f16_load) CONVERTED(write_f16, float, f16, f16_store)
#endif
#endif

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
FLOAT_DIVISION(float, f) FLOAT_DIVISION(double, )

/* Infinite where a side is, also beside a NaN, which vector math forgets. */
#define HYPOT(T, S) \
  INLINED T hypot_##T(T a, T b) { \
    T c = hypot##S(a, b); \
    return (fabs##S(a) == (T)INFINITY) | (fabs##S(b) == (T)INFINITY) ? (T)INFINITY : c; \
  }
HYPOT(float, f) HYPOT(double, )

#define INT_DIVISION(T) \
  static inline T floordiv_##T(T a, T b) { \
    T q = a / b; \
    return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q; \
  } \
  static inline T remainder_##T(T a, T b) { \
    T r = a % b; \
    return (r != 0 && (b < 0) != (r < 0)) ? r + b : r; \
  }
INT_DIVISION(int64_t) INT_DIVISION(int32_t) INT_DIVISION(int16_t) INT_DIVISION(int8_t) INT_DIVISION(uint8_t)

/* Extremes that keep NaN, whichever side it is on: an instruction for the extreme of numbers, and one for NaN in a. */
#define EXTREMES(T) \
  INLINED T max_##T(T a, T b) { T m = a > b ? a : b; return a != a ? a : m; } \
  INLINED T min_##T(T a, T b) { T m = a < b ? a : b; return a != a ? a : m; }
EXTREMES(float) EXTREMES(double) EXTREMES(int64_t) EXTREMES(int32_t) EXTREMES(int16_t) EXTREMES(int8_t) EXTREMES(uint8_t)

/* Integers in the order of the floats that they stand for, NaN above all (max) or below all (min). */
#define KEYS(T, I, SIGN, LOW, HIGH) \
  typedef union { T value; I bits; } T##_bits; \
  INLINED I ordered_##T(I i) { return i ^ ((i >> SIGN) & HIGH); } \
  INLINED I max_key_##T(T x) { T##_bits v = {x}; I i = ordered_##T(v.bits); return x != x ? HIGH : i; } \
  INLINED I min_key_##T(T x) { T##_bits v = {x}; I i = ordered_##T(v.bits); return x != x ? LOW : i; } \
  INLINED T key_value_##T(I key) { T##_bits v; v.bits = ordered_##T(key); return v.value; }
KEYS(float, int32_t, 31, INT32_MIN, INT32_MAX)
KEYS(double, int64_t, 63, INT64_MIN, INT64_MAX)
INLINED bool max_bool(bool a, bool b) { return a | b; }
INLINED bool min_bool(bool a, bool b) { return a & b; }

/* log(exp(a) + exp(b)), as eager accumulates it. */
#define LOGADDEXP(T, S) \
  INLINED T logaddexp_##T(T a, T b) { \
    T low = a != a ? a : a < b ? a : b, high = a != a ? a : b < a ? a : b; \
    return low != high || isfinite(low) ? log1p##S(exp##S(low - high)) + high : b; \
  }
LOGADDEXP(float, f) LOGADDEXP(double, )

/* An index that is checked: out of range sets the function's flag ``bad`` and reads element 0 instead. Vector loops keep a flag in each
   lane, of the width of an index; a store to memory under a condition would make the loops scalar. */
#define INSIDE(i, size) (((i) >= 0) & ((i) < (size)))
#define CHECK_INDEX(i, size, valid) (bad |= (int64_t)((valid) & !INSIDE(i, size)), INSIDE(i, size) ? (i) : 0)
#define WRAP_INDEX(i, size, valid) CHECK_INDEX(((i) < 0 ? (i) + (size) : (i)), size, valid)

/* Blocks turned over: element (i, j) of dst is element (j, i) of src; the strides are those of rows. */
#define TRANSPOSE(T, CASES) \
  static inline void transpose_##T(const T* src, int64_t from, T* dst, int64_t to, int64_t rows, int64_t columns) { \
    CASES \
    for (int64_t i = 0; i < rows; i++) \
      for (int64_t j = 0; j < columns; j++) dst[i * to + j] = src[j * from + i]; \
  }
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define FXSTACK_SHUFFLES
#endif
#endif
#ifdef FXSTACK_SHUFFLES
#define PAIR __builtin_shufflevector
#define WORDS(T, n) typedef T T##_##n __attribute__((vector_size(n * sizeof(T)), aligned(sizeof(T)), may_alias));
WORDS(uint16_t, 4) WORDS(uint16_t, 8) WORDS(uint32_t, 4) WORDS(uint32_t, 8) WORDS(uint64_t, 2) WORDS(uint64_t, 4)
/* Elements, pairs and quarters of two vectors in turn, in each half of 32 bytes, or in all 16 (IN_16): instructions work within 16 bytes. */
#define LOW(a, b) PAIR(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH(a, b) PAIR(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define LOW2(a, b) PAIR(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define HIGH2(a, b) PAIR(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#define LOW4(a, b) PAIR(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define HIGH4(a, b) PAIR(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#define LOW_IN_16(a, b) PAIR(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_IN_16(a, b) PAIR(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW2_IN_16(a, b) (uint16_t_8)PAIR((uint32_t_4)(a), (uint32_t_4)(b), 0, 4, 1, 5)
#define HIGH2_IN_16(a, b) (uint16_t_8)PAIR((uint32_t_4)(a), (uint32_t_4)(b), 2, 6, 3, 7)
#define LOW4_IN_16(a, b) (uint16_t_8)PAIR((uint64_t_2)(a), (uint64_t_2)(b), 0, 2)
#define HIGH4_IN_16(a, b) (uint16_t_8)PAIR((uint64_t_2)(a), (uint64_t_2)(b), 1, 3)
#define TURN(n, SIZE) \
  for (int k = 0; k < n; k += 2) b[k] = LOW##SIZE(a[k], a[k + 1]), b[k + 1] = HIGH##SIZE(a[k], a[k + 1]); \
  for (int k = 0; k < n; k += 4) a[k] = LOW2##SIZE(b[k], b[k + 2]), a[k + 1] = HIGH2##SIZE(b[k], b[k + 2]); \
  for (int k = 0; k < n; k += 4) a[k + 2] = LOW2##SIZE(b[k + 1], b[k + 3]), a[k + 3] = HIGH2##SIZE(b[k + 1], b[k + 3]);
#define FROM(T, n, k) (*(const T##_##n*)(src + (k) * from))
#define TO(T, n, k) (*(T##_##n*)(dst + (k) * to))
#define BLOCKS_OF_8(T, SIZE, STEP, NEXT) \
  static inline void transpose_8x8_##T(const T* src, int64_t from, T* dst, int64_t to) { \
    T##_8 a[8], b[8]; for (int k = 0; k < 8; k++) a[k] = FROM(T, 8, k); \
    TURN(8, SIZE) \
    for (int k = 0; k < 4; k++) TO(T, 8, k * STEP) = LOW4##SIZE(a[k], a[k + 4]), TO(T, 8, k * STEP + NEXT) = HIGH4##SIZE(a[k], a[k + 4]); \
  } \
  static inline void transpose_4x8_##T(const T* src, int64_t from, T* dst, int64_t to) { \
    T##_8 a[4], b[4]; for (int k = 0; k < 4; k++) a[k] = PAIR(FROM(T, 4, k), FROM(T, 4, k + 4), 0, 1, 2, 3, 4, 5, 6, 7); \
    TURN(4, ) \
    for (int k = 0; k < 4; k++) TO(T, 8, k) = a[k]; \
  } \
  static inline void transpose_8x4_##T(const T* src, int64_t from, T* dst, int64_t to) { \
    T##_8 a[4], b[4]; for (int k = 0; k < 4; k++) a[k] = FROM(T, 8, k); \
    TURN(4, SIZE) \
    for (int k = 0; k < 4; k++) TO(T, 4, k * STEP) = PAIR(a[k], a[k], 0, 1, 2, 3), TO(T, 4, k * STEP + NEXT) = PAIR(a[k], a[k], 4, 5, 6, 7); \
  }
BLOCKS_OF_8(uint16_t, _IN_16, 2, 1) BLOCKS_OF_8(uint32_t, , 1, 4)
static inline void transpose_4x4_uint64_t(const uint64_t* src, int64_t from, uint64_t* dst, int64_t to) {
  uint64_t_4 a[4], b[4]; for (int k = 0; k < 4; k++) a[k] = FROM(uint64_t, 4, k);
  for (int k = 0; k < 4; k += 2) b[k] = PAIR(a[k], a[k + 1], 0, 4, 2, 6), b[k + 1] = PAIR(a[k], a[k + 1], 1, 5, 3, 7);
  for (int k = 0; k < 2; k++)
    TO(uint64_t, 4, k) = PAIR(b[k], b[k + 2], 0, 1, 4, 5), TO(uint64_t, 4, k + 2) = PAIR(b[k], b[k + 2], 2, 3, 6, 7);
}
/* Blocks go first along the lines of the side whose lines lie further apart: both halves of a cache line are used before it is evicted. The
   last block of a side that is no multiple of the block's begins earlier, over elements that are already there. */
#define CASE(T, R, C) \
  if (rows >= R && columns >= C) { \
    for (int64_t n = 0; n < (from > to ? columns : rows); n += from > to ? C : R) \
      for (int64_t m = 0; m < (from > to ? rows : columns); m += from > to ? R : C) { \
        const int64_t a = from > to ? m : n, b = from > to ? n : m, i = a < rows - R ? a : rows - R, j = b < columns - C ? b : columns - C; \
        transpose_##R##x##C##_##T(src + j * from + i, from, dst + i * to + j, to); \
      } \
    return; \
  }
#else
#define CASE(T, R, C)
#endif
#define CASES_OF_8(T) CASE(T, 8, 8) CASE(T, 8, 4) CASE(T, 4, 8)
TRANSPOSE(uint8_t, ) TRANSPOSE(uint16_t, CASES_OF_8(uint16_t)) TRANSPOSE(uint32_t, CASES_OF_8(uint32_t)) TRANSPOSE(uint64_t, CASE(uint64_t, 4, 4))

/* Sixteen lanes folded in halves to one. */
#ifdef FXSTACK_SHUFFLES
#define FOLD(NAME, T, STEP) \
  typedef T NAME##_lanes __attribute__((vector_size(8 * sizeof(T)), aligned(8), may_alias)); \
  static inline T NAME(const T* lanes) { \
    NAME##_lanes a = *(const NAME##_lanes*)lanes, b = *(const NAME##_lanes*)(lanes + 8); \
    a = STEP(a, b), b = __builtin_shufflevector(a, a, 4, 5, 6, 7, 0, 1, 2, 3); \
    a = STEP(a, b), b = __builtin_shufflevector(a, a, 2, 3, 0, 1, 6, 7, 4, 5); \
    a = STEP(a, b), b = __builtin_shufflevector(a, a, 1, 0, 3, 2, 5, 4, 7, 6); \
    a = STEP(a, b); \
    return a[0]; \
  }
#define CHOSEN(a, b, mask) (((a) & (mask)) | ((b) & ~(mask)))
#define LARGER(a, b) CHOSEN(a, b, (a) > (b))
#define SMALLER(a, b) CHOSEN(a, b, (a) < (b))
#else
#define FOLD(NAME, T, STEP) \
  static inline T NAME(const T* lanes) { \
    T a[8]; \
    for (int j = 0; j < 8; j++) a[j] = STEP(lanes[j], lanes[j + 8]); \
    for (int w = 4; w; w /= 2) \
      for (int j = 0; j < w; j++) a[j] = STEP(a[j], a[j + w]); \
    return a[0]; \
  }
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) ? (a) : (b))
#endif
#define ADDED(a, b) ((a) + (b))
FOLD(fold_sum_float, float, ADDED)
FOLD(fold_sum_double, double, ADDED)
FOLD(fold_max_int32_t, int32_t, LARGER)
FOLD(fold_min_int32_t, int32_t, SMALLER)
FOLD(fold_max_int64_t, int64_t, LARGER)
FOLD(fold_min_int64_t, int64_t, SMALLER)

/* How many columns a thread takes at once: whole cache lines of any type; all threads have some, and none has more than ``most``. */
static inline int64_t column_step(int64_t columns, int64_t others, int64_t threads, int64_t most) {
  int64_t shares = others >= threads ? 1 : (threads + others - 1) / others;
  int64_t step = ((columns + shares - 1) / shares + 63) & ~INT64_C(63);
  step = step < 64 ? 64 : step;
  return step < most ? step : most;
}

/* How many points that lie ``step`` elements apart fill cache lines of ``line`` elements, which is a power of two. */
static inline int64_t line_block(int64_t step, int64_t line) {
  while (line > 1 && step % 2 == 0) { step /= 2; line /= 2; }
  return line;
}

/* exp, tanh and erf in single precision and exp in double, without branches, for loops that become vectors. exp and erf are used always: in
   single precision they take 0.23 and 0.42 ns an element where glibc's take 0.29 and 0.60 (AVX-512), and glibc's exp takes a lane at a time
   where any is infinite, as every mask of a softmax makes it. tanh is for C libraries without vector math of their own (glibc has it since
   2.35, as fast as this), and for clang, which calls no vector math of a C library.

   exp: x = n ln 2 + r with the Cody-Waite split of ln 2, then a polynomial in r (at most 1 ulp). The number n is read from the last bits of
   x / ln 2 + 1.5 * 2^23, and x is clamped as an integer: of two clamps of floats GCC makes four comparisons.
   erf: an odd polynomial below 1.25, a polynomial in |x| up to 3.92, where it becomes 1 (at most 2 ulp).
   tanh: an odd polynomial near 0, and 1 - 2 / (exp(2x) + 1) beyond it (at most 2 ulp).
   The coefficients are least-maximum fits (Lawson's iteration) to float64 references. NaN stays NaN. */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#define DFMA(a, b, c) __builtin_fma(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#define DFMA FMA
#endif

INLINED float fast_expf(float x) {
  const float origin = 12582912.0f + 254.0f; /* the last bits are n + 2 * 127 */
  float_word c = {x}, k, p, low, high;
  c.bits = c.bits < 0xc2d20000u ? c.bits : 0xc2d20000u; /* at least -105: larger words are negative floats beyond it */
  c.ordered = c.ordered < 0x42b20000 ? c.ordered : 0x42b20000; /* at most 89 */
  k.value = FMA(c.value, 1.44269504f, origin);
  float n = k.value - origin;
  float r = FMA(n, 2.12194442e-4f, FMA(n, -0.693359375f, c.value));
  p.value = 1.3814467238262296e-3f;
  p.value = FMA(p.value, r, 8.368780836462975e-3f);
  p.value = FMA(p.value, r, 4.166839271783829e-2f);
  p.value = FMA(p.value, r, 0.1666651964187622f);
  p.value = FMA(p.value, r, 0.4999999403953552f);
  p.value = FMA(p.value, r * r, r) + 1.0f;
  /* 2^n in two steps, so that results at both ends of the range are rounded once */
  uint32_t half = (k.bits >> 1) << 23;
  low.bits = p.bits + (half - (127u << 23));
  high.bits = (k.bits << 23) - half;
  /* A product that underflows takes processors a hundred cycles, and softmax has many that come to 0. */
  low.value = c.value < -103.972076f ? 0.0f : low.value;
  float result = low.value * high.value;
  return x != x ? x : result;
}

INLINED float fast_tanhf(float x) {
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

INLINED float fast_erff(float x) {
  float t = __builtin_fabsf(x), s = x * x;
  float p = -7.573022685392061e-06f;
  p = FMA(p, s, 0.00010393911361461505f);
  p = FMA(p, s, -0.0008339578052982688f);
  p = FMA(p, s, 0.0052090175449848175f);
  p = FMA(p, s, -0.026860248297452927f);
  p = FMA(p, s, 0.11283674836158752f);
  p = FMA(p, s, -0.3761262893676758f);
  p = FMA(p, s, 0.12837916612625122f);
  float z = t - 2.6f;
  float q = -8.509621693519875e-06f;
  q = FMA(q, z, 9.56098210735945e-06f);
  q = FMA(q, z, 7.573553739348426e-05f);
  q = FMA(q, z, -0.0002049256581813097f);
  q = FMA(q, z, 7.280203863047063e-05f);
  q = FMA(q, z, 0.0007029014523141086f);
  q = FMA(q, z, -0.0023664524778723717f);
  q = FMA(q, z, 0.00454800296574831f);
  q = FMA(q, z, -0.005962547846138477f);
  q = FMA(q, z, 0.005462262779474258f);
  q = FMA(q, z, -0.003400980494916439f);
  q = FMA(q, z, 0.001307847909629345f);
  q = FMA(q, z, 0.9997639656066895f);
  q = t > 3.92f ? 1.0f : q;
  return t < 1.25f ? FMA(p, x, x) : __builtin_copysignf(q, x);
}

/* exp of doubles, as that of floats (at most 1 ulp; glibc's 2). glibc's vector exp takes a lane at a time, twenty times as long, where any
   argument is infinite or NaN, or any result below 2e-308. The last bits of h are n / 2, rounded. */
INLINED double fast_exp(double x) {
  const double origin = 6755399441055744.0; /* 1.5 * 2^52 */
  double c = x < 710.0 ? x : 710.0;
  c = c > -746.0 ? c : -746.0;
  double_word k = {DFMA(c, 1.4426950408889634, origin)}, p, high;
  double n = k.value - origin;
  double_word h = {DFMA(n, 0.5, origin)};
  double r = DFMA(n, -1.9082149292705877e-10, DFMA(n, -0.6931471803691238, c));
  p.value = 2.5100375924709717e-08;
  p.value = DFMA(p.value, r, 2.762007599981065e-07);
  p.value = DFMA(p.value, r, 2.7557268480116333e-06);
  p.value = DFMA(p.value, r, 2.4801521322116825e-05);
  p.value = DFMA(p.value, r, 0.0001984126986304067);
  p.value = DFMA(p.value, r, 0.0013888888917196881);
  p.value = DFMA(p.value, r, 0.008333333333330065);
  p.value = DFMA(p.value, r, 0.041666666666624164);
  p.value = DFMA(p.value, r, 0.16666666666666669);
  p.value = DFMA(p.value, r, 0.5);
  p.value = DFMA(p.value, r * r, r) + 1.0;
  p.bits += h.bits << 52;
  high.bits = (k.bits - h.bits + 1023) << 52;
  p.value = c < -745.2 ? 0.0 : p.value;
  double result = p.value * high.value;
  return x != x ? x : result;
}
#ifndef FXSTACK_EXACT_MATH
#define exp(x) fast_exp(x) /* with its parameter: the host program names the function of the library */
#define expf fast_expf
#define erff fast_erff
#if !defined(FXSTACK_LIBMVEC) || FXSTACK_LIBMVEC < 235 || defined(__clang__)
#define tanhf fast_tanhf
#endif
#endif

/* ---- a part of its own ---- */
/* cummax */
FUNCTION_BEGIN STRAIGHT
void kernel_0(const float* restrict a0, const float* restrict a1, float* restrict a2, const int64_t threads) {
  const int64_t step = column_step(100, threads, threads, 1024);
  for (int64_t tile = 0; tile < 100; tile += step) {
    const int64_t width = min_int64_t(100 - tile, step);
    float state6[1024];
    for (int64_t j = 0; j < width; j++) { state6[j] = -INFINITY; }
    for (int64_t block = 0; block < 18826; block += 256) {
      const int64_t stop = 18826 - block < 256 ? 18826 : block + 256;
      for (int64_t r0 = block; r0 < stop; r0++) {
        const float v1 = a1[r0];
        const float v4 = (v1 * ((float)2.0));
        #pragma omp simd /* vector */
        for (int64_t j = 0; j < width; j++) {
          const int64_t p0 = tile + j;
          const float v0 = a0[p0 + r0*100];
          const bool v2 = (v0 > v1);
          const float v5 = (v2 ? v0 : v4);
          state6[j] = max_float(state6[j], v5);
          const float v6 = state6[j];
          a2[p0 + r0*100] = v6;
        }
      }
    }
  }
}
FUNCTION_END

/* roll */
FUNCTION_BEGIN STRAIGHT
static __attribute__((noinline)) void kernel_1_part(const float* restrict a0, const float* restrict a1, float* restrict a2, const int64_t threads, const int64_t self) {
  const int64_t unit = 4, blocks = ((18826) + unit - 1) / unit;
  const int64_t first = blocks * self / threads * unit;
  const int64_t last = min_int64_t((18826), blocks * (self + 1) / threads * unit);
  const int64_t size0 = 1;
  const int64_t begin0 = 0 < first ? (first - 0) / size0 : 0;
  const int64_t end0 = last - 0 < (18826) * size0 ? (last - 0 + size0 - 1) / size0 : 18826;
  for (int64_t p0 = begin0; p0 < end0; p0++) {
    const int64_t at0 = 0 + p0 * size0;
     {
      const float v1 = a1[p0];
      const float v4 = (v1 * ((float)2.0));
      #pragma omp simd /* written out or vector, because it has few points */
      for (int64_t p1 = 0; p1 < 3; p1++) {
        const float v0 = a0[p0*100 + p1 + 97];
        const bool v2 = (v0 > v1);
        const float v5 = (v2 ? v0 : v4);
        a2[p0*100 + p1] = v5;
      }
    }
     {
      const float v1 = a1[p0];
      const float v4 = (v1 * ((float)2.0));
      #pragma omp simd /* vector */
      for (int64_t p1 = 0; p1 < 97; p1++) {
        const float v0 = a0[p0*100 + p1];
        const bool v2 = (v0 > v1);
        const float v5 = (v2 ? v0 : v4);
        a2[p0*100 + p1 + 3] = v5;
      }
    }
  }
}
struct kernel_1_part_given { const float* restrict a0; const float* restrict a1; float* restrict a2; };
static void kernel_1_part_member(void* data) {
  const struct kernel_1_part_given* given = data;
  kernel_1_part(given->a0, given->a1, given->a2, omp_get_num_threads(), omp_get_thread_num());
}
void kernel_1(const float* restrict a0, const float* restrict a1, float* restrict a2, const int64_t threads) {
  if (!(threads > 1)) {
    kernel_1_part(a0, a1, a2, 1, 0);
    return;
  }
  GOMP_parallel(kernel_1_part_member, &(struct kernel_1_part_given){a0, a1, a2}, threads, 0);
}
FUNCTION_END

/* amax, masked_fill, sum_1, add, log_1, where_1, argmin */
FUNCTION_BEGIN STRAIGHT
static __attribute__((noinline)) void kernel_2_part(const float* restrict a0, const float* restrict a1, const int64_t* restrict a2, float* restrict a3, int32_t* restrict a4, int32_t* error, const int64_t threads, const int64_t self) {
  int64_t bad = 0;
  const int64_t unit = 16, blocks = ((18826) + unit - 1) / unit;
  const int64_t first = blocks * self / threads * unit;
  const int64_t last = min_int64_t((18826), blocks * (self + 1) / threads * unit);
  const int64_t size0 = 1;
  const int64_t begin0 = 0 < first ? (first - 0) / size0 : 0;
  const int64_t end0 = last - 0 < (18826) * size0 ? (last - 0 + size0 - 1) / size0 : 18826;
  for (int64_t p0 = begin0; p0 < end0; p0++) {
    const int64_t at0 = 0 + p0 * size0;
    float row31[100];
    const float v1 = a1[p0];
    const float v4 = (v1 * ((float)2.0));
    float v6 = -INFINITY;
    float v32 = INFINITY;
    const int32_t first6 = max_key_float(v6);
    int32_t lane6[16] __attribute__((aligned(64)));
    for (int64_t j = 0; j < 16; j++) lane6[j] = first6;
    const int32_t first32 = min_key_float(v32);
    int32_t lane32[16] __attribute__((aligned(64)));
    for (int64_t j = 0; j < 16; j++) lane32[j] = first32;
    for (int64_t from = 0; from < 100; from += 16) {
      const int64_t at = min_int64_t(from, 100 - 16);
      const int32_t before = from - at;
      #pragma omp simd reduction(|:bad) /* vector */
      for (int64_t j = 0; j < 16; j++) {
        const int64_t r0 = at + j;
        const float v0 = a0[p0*100 + r0];
        const bool v2 = (v0 > v1);
        const float v5 = (v2 ? v0 : v4);
        const int64_t v17 = a2[r0];
        const int64_t v18 = WRAP_INDEX(v17, 100, true);
        const float v19 = a0[(int32_t)v18 + p0*100];
        const bool v20 = (v19 > v1);
        const float v21 = (v20 ? v19 : v4);
        const float v23 = (v21 * ((float)0.5));
        const float v25 = (v23 + ((float)1.0));
        const float v26 = fabsf(v25);
        const float v27 = (v26 + ((float)1.0));
        const float v28 = logf(v27);
        const bool v29 = (v28 > v28);
        const float v30 = (v28 * ((float)2.0));
        const float v31 = (v29 ? v28 : v30);
        row31[r0] = v31;
        const int32_t key6 = max_key_float(v5); lane6[j] = lane6[j] > key6 ? lane6[j] : key6;
        const int32_t key32 = min_key_float(v31); lane32[j] = lane32[j] < key32 ? lane32[j] : key32;
      }
    }
    v6 = key_value_float(fold_max_int32_t(lane6));
    v32 = key_value_float(fold_min_int32_t(lane32));
    const float v7 = fabsf(v6);
    const bool v9 = (v7 == ((float)INFINITY));
    const float v11 = (v9 ? ((float)0.0) : v6);
    float v14 = 0;
    int32_t v39 = INT32_MAX;
    float lane14[16] __attribute__((aligned(64)));
    for (int64_t j = 0; j < 16; j++) lane14[j] = 0;
    int32_t lane39[16] __attribute__((aligned(64)));
    for (int64_t j = 0; j < 16; j++) lane39[j] = INT32_MAX;
    for (int64_t from = 0; from < 100; from += 16) {
      const int64_t at = min_int64_t(from, 100 - 16);
      const int32_t before = from - at;
      #pragma omp simd reduction(|:bad) /* vector */
      for (int64_t j = 0; j < 16; j++) {
        const int64_t r0 = at + j;
        const float v0 = a0[p0*100 + r0];
        const bool v2 = (v0 > v1);
        const float v5 = (v2 ? v0 : v4);
        const float v12 = (v5 - v11);
        const float v13 = expf(v12);
        const float v31 = row31[r0];
        const bool v33 = (v31 == v32);
        const bool v34 = (v31 != v31);
        const bool v35 = (v33 | v34);
        const int32_t v36 = ((int32_t)(int64_t)(r0));
        const int32_t v38 = (v35 ? v36 : ((int32_t)2147483647));
        lane14[j] = lane14[j] + ((int32_t)j < before ? 0 : v13);
        lane39[j] = lane39[j] < v38 ? lane39[j] : v38;
      }
    }
    v14 = v14 + fold_sum_float(lane14);
    v39 = v39 < fold_min_int32_t(lane39) ? v39 : fold_min_int32_t(lane39);
    const float v15 = logf(v14);
    const float v16 = (v15 + v11);
    a3[p0] = v16;
    a4[p0] = v39;
  }
  if (bad) *error = 1;
}
struct kernel_2_part_given { const float* restrict a0; const float* restrict a1; const int64_t* restrict a2; float* restrict a3; int32_t* restrict a4; int32_t* error; };
static void kernel_2_part_member(void* data) {
  const struct kernel_2_part_given* given = data;
  kernel_2_part(given->a0, given->a1, given->a2, given->a3, given->a4, given->error, omp_get_num_threads(), omp_get_thread_num());
}
void kernel_2(const float* restrict a0, const float* restrict a1, const int64_t* restrict a2, float* restrict a3, int32_t* restrict a4, int32_t* error, const int64_t threads) {
  if (!(threads > 1)) {
    kernel_2_part(a0, a1, a2, a3, a4, error, 1, 0);
    return;
  }
  GOMP_parallel(kernel_2_part_member, &(struct kernel_2_part_given){a0, a1, a2, a3, a4, error}, threads, 0);
}
FUNCTION_END

/* roll_1 */
FUNCTION_BEGIN STRAIGHT
static __attribute__((noinline)) void kernel_3_part(const float* restrict a0, const int32_t* restrict a1, float* restrict a2, const int64_t threads, const int64_t self) {
  const int64_t unit = 16, blocks = ((18826) + unit - 1) / unit;
  const int64_t first = blocks * self / threads * unit;
  const int64_t last = min_int64_t((18826), blocks * (self + 1) / threads * unit);
  const int64_t size0 = 1;
  const int64_t begin0 = 0 < first ? (first - 0) / size0 : 0;
  const int64_t end0 = last - 0 < (18826) * size0 ? (last - 0 + size0 - 1) / size0 : 18826;
  for (int64_t p0 = begin0; p0 < end0; p0++) {
    const int64_t at0 = 0 + p0 * size0;
     {
      const int32_t v2 = a1[p0];
      const int64_t v3 = ((int64_t)v2);
      const float v4 = ((float)v3);
      const float v6 = (v4 * ((float)0.001));
      #pragma omp simd /* written out or vector, because it has few points */
      for (int64_t p1 = 0; p1 < 3; p1++) {
        const float v0 = a0[p0*100 + p1 + 97];
        const float v1 = sinf(v0);
        const float v7 = (v1 - v6);
        a2[p0*100 + p1] = v7;
      }
    }
     {
      const int32_t v2 = a1[p0];
      const int64_t v3 = ((int64_t)v2);
      const float v4 = ((float)v3);
      const float v6 = (v4 * ((float)0.001));
      #pragma omp simd /* vector */
      for (int64_t p1 = 0; p1 < 97; p1++) {
        const float v0 = a0[p0*100 + p1];
        const float v1 = sinf(v0);
        const float v7 = (v1 - v6);
        a2[p0*100 + p1 + 3] = v7;
      }
    }
  }
}
struct kernel_3_part_given { const float* restrict a0; const int32_t* restrict a1; float* restrict a2; };
static void kernel_3_part_member(void* data) {
  const struct kernel_3_part_given* given = data;
  kernel_3_part(given->a0, given->a1, given->a2, omp_get_num_threads(), omp_get_thread_num());
}
void kernel_3(const float* restrict a0, const int32_t* restrict a1, float* restrict a2, const int64_t threads) {
  if (!(threads > 1)) {
    kernel_3_part(a0, a1, a2, 1, 0);
    return;
  }
  GOMP_parallel(kernel_3_part_member, &(struct kernel_3_part_given){a0, a1, a2}, threads, 0);
}
FUNCTION_END
