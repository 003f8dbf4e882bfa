/* Arithmetic of sizes, as index expressions spell it (codegen/index_text.py); quotients are rounded down, as Python's are. */
static inline int64_t floordiv_int64_t(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static inline int64_t remainder_int64_t(int64_t a, int64_t b) { return a - b * floordiv_int64_t(a, b); }
static inline int64_t max_int64_t(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t min_int64_t(int64_t a, int64_t b) { return a < b ? a : b; }

/* What host programs of graphs on CUDA do beside launches (runtime/launch.c): the rare cases, each a function of Python's. */

/* The tensor that `function` returns, given `tensor` (unless it is 0) and numbers; `place` keeps it. 0, with an exception, if it fails.
   `thread` is the state of a thread that has given up the interpreter's lock, as it has again afterwards, or 0. */
static __attribute__((cold)) void* fx_by_python(void** thread, fx_object* function, void* tensor, const int64_t* numbers,
                                                int64_t count, fx_object** place) {
  fx_object* arguments[count + 1];
  void* made = 0;
  int64_t given = 0, wanted = count + (tensor != 0), unlocked = *thread != 0;
  if (unlocked) fx.PyEval_RestoreThread(*thread), *thread = 0;
  if (tensor && (arguments[0] = fx.wrap_tensor(tensor))) given = 1;
  for (int64_t k = 0; k < count && given == k + (tensor != 0); k++)
    if ((arguments[given] = fx.PyLong_FromLongLong(numbers[k]))) given++;
  if (given == wanted && !fx_call(function, arguments, given, place, 1)) made = fx_tensor(*place);
  while (given) fx.Py_DecRef(arguments[--given]);
  if (made && unlocked) *thread = fx.PyEval_SaveThread();
  return made;
}

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

/* Let go of what a rare case has made. */
static __attribute__((cold)) void fx_release(void** thread, fx_object** place) {
  int64_t unlocked = *thread != 0;
  if (unlocked) fx.PyEval_RestoreThread(*thread), *thread = 0;
  fx_set(place, 0);
  if (unlocked) *thread = fx.PyEval_SaveThread();
}
