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
INLINED bf16 bf16_bits(float x) { return (bf16)((float_word){x}.bits >> 16); } /* of a number that bf16 has */
INLINED bf16 bf16_store(float x) { return bf16_bits(bf16_round(x)); }

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

/* Numbers beyond the last of ``count`` elements, up to a multiple of 16, for loops of whole vectors: the first element. */
#define PADDED(T, TO, ONE) \
  static inline void pad_##T(TO* restrict to, const T* restrict from, int64_t count) { \
    for (int64_t i = count; i < (count + 15) / 16 * 16; i++) to[i] = ONE(*from); \
  }
#define WITHOUT_PADDING(T, TO) \
  static inline void pad_##T(TO* restrict to, const T* restrict from, int64_t count) {} /* the read of the rest does it */

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
#define READS_PAD
#define READ_REST(WHOLE, ONE) \
  *(floats*)(to + i) = WHOLE(__builtin_ia32_loaddquhi256_mask((const short*)(from + i), (halves){} + (short)*from, FIRST(count - i)));
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

#ifdef READS_PAD
WITHOUT_PADDING(f16, float) WITHOUT_PADDING(bf16, float)
#else
PADDED(bf16, float, bf16_load)
#if defined(__x86_64__) || defined(__FLT16_MAX__)
PADDED(f16, float, f16_load)
#endif
#endif

/* The same without a conversion, with masks where processors have them. */
#if defined(__x86_64__) && !defined(__clang__) && defined(__AVX__)
#ifdef __AVX512F__
#define MASKED 64
#define MASK(s, N) ((1u << (count - i < 0 ? 0 : count - i)) - 1)
#define READ_MASKED(s, N) __builtin_ia32_loadup##s##512_mask(from + i, (vector_##s){} + *from, MASK(s, N))
#define WRITE_MASKED(s, N) __builtin_ia32_storeup##s##512_mask(to + i, *(const vector_##s*)(from + i), MASK(s, N))
#else
#define MASKED 32
#define INDEX_s {0, 1, 2, 3, 4, 5, 6, 7}
#define INDEX_d {0, 1, 2, 3}
#define MASK(s, N) ((index_##s)INDEX_##s < (index_##s){} + (word_##s)(count - i))
#define READ_MASKED(s, N) \
  (vector_##s)((index_##s)__builtin_ia32_maskloadp##s##256((const void*)(from + i), MASK(s, N)) | ((index_##s)((vector_##s){} + *from) & ~MASK(s, N)))
#define WRITE_MASKED(s, N) __builtin_ia32_maskstorep##s##256((void*)(to + i), MASK(s, N), *(const vector_##s*)(from + i))
#endif
#define COPIES(T, WORD, s, N) \
  typedef T vector_##s __attribute__((vector_size(MASKED), aligned(sizeof(T)), may_alias)); \
  typedef WORD word_##s; \
  typedef WORD index_##s __attribute__((vector_size(MASKED))); \
  static inline void read_##T(T* restrict to, const T* restrict from, int64_t count) { \
    for (int64_t i = 0; i < (count + 15) / 16 * 16; i += N) \
      if (i + N <= count) *(vector_##s*)(to + i) = *(const vector_##s*)(from + i); \
      else *(vector_##s*)(to + i) = READ_MASKED(s, N); \
  } \
  static inline void write_##T(T* restrict to, const T* restrict from, int64_t count) { \
    for (int64_t i = 0; i < count; i += N) \
      if (i + N <= count) *(vector_##s*)(to + i) = *(const vector_##s*)(from + i); \
      else WRITE_MASKED(s, N); \
  }
COPIES(float, int, s, MASKED / 4) COPIES(double, long long, d, MASKED / 8)
WITHOUT_PADDING(float, float) WITHOUT_PADDING(double, double)
#else
CONVERTED(read_float, float, float, ) CONVERTED(write_float, float, float, )
CONVERTED(read_double, double, double, ) CONVERTED(write_double, double, double, )
PADDED(float, float, ) PADDED(double, double, )
#endif

/* Writes whole lines of 64 bytes past the caches. Before other threads read them, the thread that wrote them passes a FENCE. */
#ifdef __AVX__
#ifdef __AVX512F__
#define WIDEST 64
#define WRITE_PAST __builtin_ia32_movntps512
#else
#define WIDEST 32
#define WRITE_PAST __builtin_ia32_movntps256
#endif
typedef float widest __attribute__((vector_size(WIDEST), may_alias));
typedef float anywhere __attribute__((vector_size(WIDEST), aligned(1), may_alias));
#ifdef __clang__
#undef WRITE_PAST
#define WRITE_PAST(to, x) __builtin_nontemporal_store((widest)(x), (widest*)(to))
#endif
#define FENCE __builtin_ia32_sfence();
static inline void stream(void* target, const void* source, int64_t bytes) {
  char* to = target;
  const char* from = source;
  int64_t at = -(intptr_t)to & 63;
  if (at > bytes) at = bytes;
  if (at) __builtin_memcpy(to, from, at);
  for (; at + 64 <= bytes; at += 64)
    for (int64_t i = at; i < at + 64; i += WIDEST) WRITE_PAST((float*)(to + i), *(const anywhere*)(from + i));
  if (at < bytes) __builtin_memcpy(to + at, from + at, bytes - at);
}
#else
#define FENCE
#define stream __builtin_memcpy
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

/* The remainder of a >= -b below b, without a division: processors have no vectors of these. */
INLINED int64_t wrapped_int64_t(int64_t a, int64_t b) { return a < 0 ? a + b : a; }

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
/* Every second element: the second vector ends with the last of them, not behind it. */
#define SECOND(T, n, ...) \
  if (step == 2) for (; i + n <= count; i += n) *(T##_##n*)(to + i) = PAIR(*(const T##_##n*)(from + 2 * i), *(const T##_##n*)(from + 2 * i + n - 1), __VA_ARGS__);
WORDS(uint16_t, 16) WORDS(uint32_t, 16) WORDS(uint64_t, 8)
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
#define SECOND(T, n, ...)
#endif
#define SECOND_OF_4(T) SECOND(T, 4, 0, 2, 5, 7)
#define SECOND_OF_8(T) SECOND(T, 8, 0, 2, 4, 6, 9, 11, 13, 15)
#define SECOND_OF_16(T) SECOND(T, 16, 0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31)
#define SPACED(T, CASE) \
  static inline void spaced_##T(T* restrict to, const T* restrict from, int64_t step, int64_t count) { \
    int64_t i = 0; \
    CASE \
    for (; i < count; i++) to[i] = from[step * i]; \
  }
#ifdef __AVX512F__
SPACED(uint16_t, SECOND_OF_16(uint16_t)) SPACED(uint32_t, SECOND_OF_16(uint32_t)) SPACED(uint64_t, SECOND_OF_8(uint64_t))
#else
SPACED(uint16_t, SECOND_OF_8(uint16_t)) SPACED(uint32_t, SECOND_OF_8(uint32_t)) SPACED(uint64_t, SECOND_OF_4(uint64_t))
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
