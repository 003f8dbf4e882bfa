/* Arithmetic of sizes, as index expressions spell it (codegen/index_text.py); quotients are rounded down, as Python's are. */
static inline int64_t floordiv_int64_t(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline int64_t remainder_int64_t(int64_t a, int64_t b) { return a - b * floordiv_int64_t(a, b); }
static inline int64_t wrapped_int64_t(int64_t a, int64_t b) { return a < 0 ? a + b : a; }
static inline int64_t max_int64_t(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t min_int64_t(int64_t a, int64_t b) { return a < b ? a : b; }

/* What host programs of graphs on CUDA do beside launches (runtime/launch.c): the rare cases, each a function of Python's. */

/* Write what a kernel has left in the aligned copy of a tensor back to the tensor. */
static __attribute__((cold)) int fx_copy_back(void** thread, fx_object* function, void* tensor, fx_object* copy) {
  int64_t unlocked = *thread != 0;
  if (unlocked) fx.PyEval_RestoreThread(*thread), *thread = 0;
  fx_object* own = fx.wrap_tensor(tensor);
  int failed = !own || fx_call(function, (fx_object*[]){own, copy}, 2, 0, 0);
  if (own) fx.Py_DecRef(own);
  if (!failed && unlocked) *thread = fx.PyEval_SaveThread();
  return failed;
}
