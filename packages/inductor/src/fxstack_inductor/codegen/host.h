/* The host program's Python and torch: functions of CPython's stable ABI and of torch's C shim, reached through a table that
   the process fills in (runtime/native.py), so that nothing but libc has to be linked and no header of either is needed. */
#include <stdint.h>

typedef struct fx_object {
  int64_t references;
  struct fx_object* type;
} fx_object;

/* A host program is one long function of calls, in which nothing is worth optimising: it took nine tenths of the
   compiler's time, because several passes are quadratic in its length. What it calls is optimised. */
#ifdef __clang__
#define FX_PLAINLY __attribute__((noinline, optnone))
#else
#define FX_PLAINLY __attribute__((noinline, optimize("O0")))
#endif

/* Tensors are handles: addresses of an at::Tensor, of our own or inside of a Python tensor. */
#define FX_FUNCTIONS(X)                                                                             \
  X(void, Py_IncRef, (fx_object*))                                                                  \
  X(void, Py_DecRef, (fx_object*))                                                                  \
  X(fx_object*, PyTuple_New, (int64_t))                                                             \
  X(int64_t, PyTuple_Size, (fx_object*))                                                            \
  X(fx_object*, PyTuple_GetItem, (fx_object*, int64_t))                                             \
  X(int, PyTuple_SetItem, (fx_object*, int64_t, fx_object*))                                        \
  X(int64_t, PyList_Size, (fx_object*))                                                             \
  X(fx_object*, PyList_GetItem, (fx_object*, int64_t))                                              \
  X(int, PyList_SetSlice, (fx_object*, int64_t, int64_t, fx_object*))                               \
  X(char*, PyBytes_AsString, (fx_object*))                                                          \
  X(fx_object*, PyLong_FromLongLong, (long long))                                                   \
  X(long long, PyLong_AsLongLong, (fx_object*))                                                     \
  X(fx_object*, PyFloat_FromDouble, (double))                                                       \
  X(double, PyFloat_AsDouble, (fx_object*))                                                         \
  X(fx_object*, PyErr_Occurred, (void))                                                             \
  X(fx_object*, PyObject_Vectorcall, (fx_object*, fx_object* const*, uint64_t, fx_object*))           \
  X(int, PyType_IsSubtype, (fx_object*, fx_object*))                                                \
  X(fx_object*, PyCFunction_NewEx, (void*, fx_object*, fx_object*))                                 \
  X(void*, PyEval_SaveThread, (void))                                                               \
  X(void, PyEval_RestoreThread, (void*))                                                            \
  X(int, PyGILState_Ensure, (void))                                                                 \
  X(void, PyGILState_Release, (int))                                                                \
  X(fx_object*, PyErr_Format, (fx_object*, const char*, ...))                                       \
  X(fx_object*, wrap_tensor, (const void*))                                                         \
  X(const char*, torch_exception_get_what_without_backtrace, (void))                                \
  X(fx_object*, PyDict_GetItem, (fx_object*, fx_object*))                                           \
  X(int32_t, aoti_record_function_start, (const char*, void*, void* const*, uint64_t, void**))      \
  X(int32_t, aoti_record_function_end, (void*))                                                     \
  X(int32_t, torch_get_num_threads, (uint32_t*))                                                    \
  X(int32_t, aoti_torch_get_data_ptr, (void*, void**))                                              \
  X(int32_t, aoti_torch_get_dtype, (void*, int32_t*))                                               \
  X(int32_t, aoti_torch_get_numel, (void*, int64_t*))                                               \
  X(int32_t, aoti_torch_get_dim, (void*, int64_t*))                                                 \
  X(int32_t, aoti_torch_get_size, (void*, int64_t, int64_t*))                                       \
  X(int32_t, aoti_torch_get_stride, (void*, int64_t, int64_t*))                                     \
  X(int32_t, aoti_torch_get_sizes, (void*, int64_t**))                                              \
  X(int32_t, aoti_torch_get_strides, (void*, int64_t**))                                            \
  X(int32_t, aoti_torch_empty_strided,                                                              \
    (int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, void**))                   \
  X(int32_t, aoti_torch__reinterpret_tensor,                                                        \
    (void*, int64_t, const int64_t*, const int64_t*, int64_t, void**))                              \
  X(int32_t, aoti_torch_delete_tensor_object, (void*))                                              \
  X(int32_t, aoti_torch_new_uninitialized_tensor, (void**))                                         \
  X(int32_t, aoti_torch_get_current_cuda_stream, (int32_t, void**))                                 \
  X(int32_t, aoti_torch_cpu_mm_out, (void*, void*, void*))                                          \
  X(int32_t, aoti_torch_cpu_bmm_out, (void*, void*, void*))                                         \
  X(int32_t, aoti_torch_cpu_addmm_out, (void*, void*, void*, void*, double, double))                \
  X(int32_t, aoti_torch_cpu_baddbmm_out, (void*, void*, void*, void*, double, double))              \
  X(int32_t, aoti_torch_cpu_convolution,                                                            \
    (void*, void*, void**, const int64_t*, int64_t, const int64_t*, int64_t, const int64_t*,        \
     int64_t, int32_t, const int64_t*, int64_t, int64_t, void**))                                   \
  X(int32_t, aoti_torch_cpu_convolution_backward,                                                   \
    (void*, void*, void*, const int64_t**, int64_t, const int64_t*, int64_t, const int64_t*,        \
     int64_t, const int64_t*, int64_t, int32_t, const int64_t*, int64_t, int64_t, const int32_t*,   \
     int64_t, void**, void**, void**))                                                              \
  X(int32_t, aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu,                            \
    (void*, void*, void*, double, int32_t, void**, double*, void**, void**))                        \
  X(int32_t, aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_backward,                   \
    (void*, void*, void*, void*, void*, void*, double, int32_t, void**, double*, void**, void**,    \
     void**))                                                                                       \
  X(int32_t, aoti_torch_cuda_mm_out, (void*, void*, void*))                                         \
  X(int32_t, aoti_torch_cuda_bmm_out, (void*, void*, void*))                                        \
  X(int32_t, aoti_torch_cuda_addmm_out, (void*, void*, void*, void*, double, double))               \
  X(int32_t, aoti_torch_cuda_baddbmm_out, (void*, void*, void*, void*, double, double))             \
  X(int32_t, aoti_torch_cuda_convolution,                                                           \
    (void*, void*, void**, const int64_t*, int64_t, const int64_t*, int64_t, const int64_t*,        \
     int64_t, int32_t, const int64_t*, int64_t, int64_t, void**))                                   \
  X(int32_t, aoti_torch_cuda_convolution_backward,                                                  \
    (void*, void*, void*, const int64_t**, int64_t, const int64_t*, int64_t, const int64_t*,        \
     int64_t, const int64_t*, int64_t, int32_t, const int64_t*, int64_t, int64_t, const int32_t*,   \
     int64_t, void**, void**, void**))                                                              \
  X(int32_t, aoti_torch_cuda_native_dropout, (void*, double, int32_t*, void**, void**))             \
  X(int32_t, aoti_torch_cuda_topk, (void*, int64_t, int64_t, int32_t, int32_t, void**, void**))     \
  X(int32_t, aoti_torch_cuda__scaled_mm,                                                            \
    (void*, void*, void*, void*, void**, void**, int32_t*, int32_t, void**))                        \
  X(int32_t, aoti_torch_cuda__scaled_dot_product_flash_attention,                                   \
    (void*, void*, void*, double, int32_t, int32_t, double*, void**, void**, void**, void**, int64_t*,\
     int64_t*, void**, void**, void**))                                                             \
  X(int32_t, aoti_torch_cuda__scaled_dot_product_flash_attention_backward,                          \
    (void*, void*, void*, void*, void*, void*, void*, void*, int64_t, int64_t, double, int32_t, void*,\
     void*, double*, void**, void**, void**))                                                       \
  X(int32_t, aoti_torch_cuda__scaled_dot_product_cudnn_attention,                                   \
    (void*, void*, void*, void**, int32_t, double, int32_t, int32_t, double*, void**, void**, void**,\
     void**, int64_t*, int64_t*, void**, void**, void**))                                           \
  X(int32_t, aoti_torch_cuda__scaled_dot_product_cudnn_attention_backward,                          \
    (void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, int64_t, int64_t, \
     double, int32_t, double*, void**, void**, void**))                                             \
  X(int32_t, aoti_torch_cuda__scaled_dot_product_efficient_attention,                               \
    (void*, void*, void*, void**, int32_t, double, int32_t, double*, void**, void**, void**, void**))\
  X(int32_t, aoti_torch_cuda__scaled_dot_product_efficient_attention_backward,                      \
    (void*, void*, void*, void*, void*, void*, void*, void*, void*, double, const int32_t*, int64_t,\
     int32_t, double*, void**, void**, void**, void**))

typedef struct {
#define FX_MEMBER(result, name, arguments) result(*name) arguments;
  FX_FUNCTIONS(FX_MEMBER)
  int64_t offset; /* of the at::Tensor in its Python object */
  fx_object *tensor, *parameter, *tensor_base, *number, *type_error, *runtime_error; /* `number` is float */
  fx_object *profiler, *profiler_flag, *yes; /* the namespace of torch.autograd.profiler, and a name in it */
} fx_api;

static fx_api fx;

/* The handle of a Python tensor; 0, with an exception, for what is none. */
static void* fx_tensor(fx_object* object) {
  if (object->type != fx.tensor && object->type != fx.parameter &&
      !fx.PyType_IsSubtype(object->type, fx.tensor_base)) {
    fx.PyErr_Format(fx.type_error, "a compiled graph got an argument that is no tensor in the place of one");
    return 0;
  }
  return (char*)object + fx.offset;
}

static fx_object* fx_object_of(void* handle) { return (fx_object*)((char*)handle - fx.offset); }

static fx_object* fx_kept(fx_object* object) {
  fx.Py_IncRef(object);
  return object;
}

static void fx_set(fx_object** place, fx_object* object) {
  fx_object* old = *place;
  *place = object;
  if (old) fx.Py_DecRef(old);
}

static void fx_drop(void** place) {
  if (*place) fx.aoti_torch_delete_tensor_object(*place);
  *place = 0;
}

static int64_t fx_size(void* tensor, int64_t dim) {
  int64_t value = 0;
  fx.aoti_torch_get_size(tensor, dim, &value);
  return value;
}

static int64_t fx_stride(void* tensor, int64_t dim) {
  int64_t value = 0;
  fx.aoti_torch_get_stride(tensor, dim, &value);
  return value;
}

/* The address of a tensor's first element; nonzero for tensors that have elements but no memory. */
static int fx_data(void* tensor, void** address) {
  int64_t elements = 0;
  if (fx.aoti_torch_get_data_ptr(tensor, address)) return -1;
  if (*address || (!fx.aoti_torch_get_numel(tensor, &elements) && !elements)) return 0;
  int state = fx.PyGILState_Ensure();
  fx.PyErr_Format(fx.runtime_error, "a compiled graph got a tensor without data (a fake or meta tensor)");
  fx.PyGILState_Release(state);
  return -1;
}

/* The addresses of some of the tensors in an array. */
static int fx_addresses(void* const* tensors, const int64_t* places, int64_t count, void** addresses) {
  for (int64_t k = 0; k < count; k++)
    if (fx_data(tensors[places[k]], &addresses[places[k]])) return -1;
  return 0;
}

/* Kernels and views trust these: in a smaller tensor they would leave its memory. */
static int fx_laid_out(void* tensor, int64_t dims, const int64_t* shape, const int64_t* stride) {
  int64_t own = -1, *sizes = 0, *strides = 0;
  if (fx.aoti_torch_get_dim(tensor, &own) || own != dims) return 0;
  if (fx.aoti_torch_get_sizes(tensor, &sizes) || fx.aoti_torch_get_strides(tensor, &strides)) return 0;
  for (int64_t k = 0; k < dims; k++)
    if (sizes[k] != shape[k] || strides[k] != stride[k]) return 0;
  return 1;
}

/* Whether what an operator returned has another dtype (by its number, unless that is negative), or is laid out otherwise, than
   the program was planned for; of the layout nothing is known where `dims` is negative. */
static int fx_otherwise(void* tensor, int32_t dtype, int64_t dims, const int64_t* shape, const int64_t* stride) {
  int32_t own = -1;
  if (dtype >= 0 && (fx.aoti_torch_get_dtype(tensor, &own) || own != dtype)) return 1;
  return dims >= 0 && !fx_laid_out(tensor, dims, shape, stride);
}

static int fx_rank(void* tensor, int64_t dims) {
  int64_t own = -1;
  if (!fx.aoti_torch_get_dim(tensor, &own) && own == dims) return 0;
  fx.PyErr_Format(fx.type_error,
                  "a compiled graph got a tensor of %lld dimensions in the place of one of %lld; compile it for such a tensor",
                  (long long)own, (long long)dims);
  return -1;
}

/* A fresh tensor on a device of type `kind` (0 is CPU, 1 CUDA) and number `index`. */
static void* fx_empty(int64_t dims, const int64_t* shape, const int64_t* stride, int32_t dtype, int32_t kind,
                      int32_t index) {
  void* made = 0;
  return fx.aoti_torch_empty_strided(dims, shape, stride, dtype, kind, index, &made) ? 0 : made;
}

/* The memory of a tensor in another shape, from `offset` elements behind its own start. */
static void* fx_view(void* base, int64_t dims, const int64_t* shape, const int64_t* stride, int64_t offset) {
  void* made = 0;
  return fx.aoti_torch__reinterpret_tensor(base, dims, shape, stride, offset, &made) ? 0 : made;
}

/* Call Python; `found` gets the `wanted` items of the tuple that it returns. */
static int fx_call(fx_object* function, fx_object* const* arguments, uint64_t count, fx_object** found,
                   int64_t wanted) {
  fx_object* result = fx.PyObject_Vectorcall(function, arguments, count, 0);
  if (!result) return -1;
  for (int64_t k = 0; k < wanted; k++) {
    fx_object* item = fx.PyTuple_GetItem(result, k);
    if (item) fx_set(&found[k], fx_kept(item));
    else wanted = -1;
  }
  fx.Py_DecRef(result);
  return wanted < 0 ? -1 : 0;
}

/* The exception for a function of the shim that failed, unless there is one already. */
static void fx_explain(void) {
  const char* why = 0;
  if (fx.PyErr_Occurred()) return;
  if (fx.torch_exception_get_what_without_backtrace) why = fx.torch_exception_get_what_without_backtrace();
  fx.PyErr_Format(fx.runtime_error, "%s",
                  why ? why : "a compiled graph could not allocate or describe a tensor; torch printed the reason");
}

static int fx_profiled(void) {
  if (!fx.aoti_record_function_start || !fx.aoti_record_function_end) return 0;
  return fx.PyDict_GetItem(fx.profiler, fx.profiler_flag) == fx.yes;
}

/* The entry of a kernel in a profile. */
static void* fx_begin(const char* kernel) {
  void* entry = 0;
  return fx.aoti_record_function_start(kernel, 0, 0, 0, &entry) ? 0 : entry;
}

static int fx_count(int64_t got, int64_t wanted) {
  if (got == wanted) return 0;
  if (!fx.PyErr_Occurred())
    fx.PyErr_Format(fx.type_error, "a compiled graph takes %lld inputs, not %lld", (long long)wanted, (long long)got);
  return -1;
}

static int fx_put(fx_object* tuple, int64_t position, fx_object* item) {
  return !item || fx.PyTuple_SetItem(tuple, position, item);
}

/* --- loops over tables (codegen/host/native_text.py): compilers take time for each statement ------- */

/* The arrays of a program. A code of a value is its position in an array, times 8, plus the number of the array; -1 is no value.
   A layout is a position in `layouts`: the number of dimensions, sizes, strides, and what a function needs besides. */
typedef struct {
  fx_object* self; /* 4 */
  fx_object** o;   /* 3 */
  void **t, **x;   /* 0, 1 */
  void* const* w;  /* 2 */
} fx_places;

static void* fx_handle(const fx_places* places, int64_t code) {
  if (code < 0) return 0;
  switch (code & 7) {
    case 0: return places->t[code >> 3];
    case 1: return places->x[code >> 3];
    default: return places->w[code >> 3];
  }
}

/* The objects of a list, kept. */
static void fx_take(fx_object* list, int64_t count, fx_object** objects) {
  for (int64_t k = 0; k < count; k++) objects[k] = fx_kept(fx.PyList_GetItem(list, k));
}

static int fx_tensors(fx_object* const* objects, int64_t count, void** handles) {
  for (int64_t k = 0; k < count; k++)
    if (!(handles[k] = fx_tensor(objects[k]))) return -1;
  return 0;
}

/* Let Python copy inputs that are laid out otherwise. Rows: input, layout, the copy's place, and Python's function. */
static int fx_restrides(const fx_places* places, const int64_t* layouts, const int64_t* rows, int64_t count) {
  for (; count--; rows += 4) {
    void** handle = &places->x[rows[0]];
    const int64_t* layout = layouts + rows[1];
    fx_object **copy = &places->o[rows[2]], *object = fx_object_of(*handle);
    if (fx_laid_out(*handle, layout[0], layout + 1, layout + 1 + layout[0])) continue;
    if (fx_call(fx.PyTuple_GetItem(places->self, rows[3]), &object, 1, copy, 1)) return -1;
    if (!(*handle = fx_tensor(*copy))) return -1;
  }
  return 0;
}

/* Fresh tensors. Rows: layout, with dtype and device. */
static int fx_empties(const int64_t* layouts, const int64_t* rows, int64_t count, void** made) {
  for (int64_t k = 0; k < count; k++) {
    const int64_t *layout = layouts + rows[k], dims = layout[0], *more = layout + 1 + 2 * dims;
    if (!(made[k] = fx_empty(dims, layout + 1, layout + 1 + dims, more[0], more[1], more[2]))) return -1;
  }
  return 0;
}

/* Views. Rows: base, and layout with offset. */
static int fx_views(const fx_places* places, const int64_t* layouts, const int64_t* rows, int64_t count, void** made) {
  for (int64_t k = 0; k < count; k++, rows += 2) {
    const int64_t *layout = layouts + rows[1], dims = layout[0];
    void* base = fx_handle(places, rows[0]);
    if (!(made[k] = fx_view(base, dims, layout + 1, layout + 1 + dims, layout[1 + 2 * dims]))) return -1;
  }
  return 0;
}

static void fx_handles(const fx_places* places, const int64_t* codes, int64_t count, void** handles) {
  for (int64_t k = 0; k < count; k++) handles[k] = fx_handle(places, codes[k]);
}

/* The tensors that a function has made, at some positions of its operands and results. */
static int fx_made(void* const* handles, const int64_t* positions, int64_t count, void** made) {
  int missing = 0;
  for (int64_t k = 0; k < count; k++) missing |= !(made[k] = handles[positions[k]]);
  return missing;
}

/* Results, from a position of the program's tuple on. */
static int fx_results(const fx_places* places, fx_object* result, int64_t first, const int64_t* codes, int64_t count) {
  for (int64_t k = 0; k < count; k++) {
    const int64_t position = codes[k] >> 3, array = codes[k] & 7;
    fx_object* item = array == 0   ? fx.wrap_tensor(places->t[position])
                      : array == 3 ? fx_kept(places->o[position])
                      : array == 4 ? fx_kept(fx.PyTuple_GetItem(places->self, position))
                                   : fx_kept(fx_object_of(fx_handle(places, codes[k])));
    if (fx_put(result, first + k, item)) return -1;
  }
  return 0;
}

static void fx_clear(fx_object** objects, const int64_t* positions, int64_t count) {
  for (int64_t k = 0; k < count; k++) fx_set(&objects[positions[k]], 0);
}

static void fx_drops(void** tensors, const int64_t* positions, int64_t count) {
  for (int64_t k = 0; k < count; k++) fx_drop(&tensors[positions[k]]);
}

/* Make a call that failed in the shim once more from Python, which raises what eager raises. */
static int fx_again(void** thread, fx_object* self, int64_t position, void* const* tensors, int64_t count) {
  fx_object* arguments[16] = {0};
  int failed = 0;
  fx.PyEval_RestoreThread(*thread);
  *thread = 0;
  for (int64_t k = 0; k < count; k++) failed |= !(arguments[k] = fx.wrap_tensor(tensors[k]));
  failed = failed || fx_call(fx.PyTuple_GetItem(self, position), arguments, count, 0, 0);
  for (int64_t k = 0; k < count; k++) fx_set(&arguments[k], 0);
  if (!failed) *thread = fx.PyEval_SaveThread();
  return failed;
}

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

/* Let go of what a rare case has made. */
static __attribute__((cold)) void fx_release(void** thread, fx_object** place) {
  int64_t unlocked = *thread != 0;
  if (unlocked) fx.PyEval_RestoreThread(*thread), *thread = 0;
  fx_set(place, 0);
  if (unlocked) *thread = fx.PyEval_SaveThread();
}

/* --- numbers that the host computes ------------------------------------------------------------------- */

/* A number of Python: a float `value`, or an integer `whole` that `value` holds exactly. C computes with it only where it is
   `known`: elsewhere Python does. `object` is its Python object, or 0 where there is none yet. */
typedef struct {
  double value;
  int64_t whole;
  int known, integer;
  fx_object* object;
} fx_number;

static fx_number fx_read(fx_object* object) {
  const int known = object->type == fx.number;
  return (fx_number){known ? fx.PyFloat_AsDouble(object) : 0, 0, known, 0, object};
}

static fx_number fx_float(double value, int known) { return (fx_number){value, 0, known, 0, 0}; }

static fx_number fx_integer(int64_t whole, int known) { return (fx_number){(double)whole, whole, known, 1, 0}; }

/* A new reference to the object of a number. */
static fx_object* fx_boxed(fx_number n) {
  if (n.object) return fx_kept(n.object);
  return n.integer ? fx.PyLong_FromLongLong(n.whole) : fx.PyFloat_FromDouble(n.value);
}

/* The object of a number, kept in `place`. */
static fx_object* fx_held(fx_number* n, fx_object** place) {
  if (!n->object) n->object = *place = fx_boxed(*n);
  return n->object;
}

/* Compute `result` by a function of Python, which raises what the program's operation raises. */
static __attribute__((cold)) int fx_number_by_python(void** thread, fx_object* function, const fx_number* operands,
                                                     int64_t count, fx_object** place, fx_number* result) {
  fx_object* arguments[count + 1];
  int64_t given = 0, unlocked = *thread != 0;
  if (unlocked) fx.PyEval_RestoreThread(*thread), *thread = 0;
  while (given < count && (arguments[given] = fx_boxed(operands[given]))) given++;
  int failed = given < count || fx_call(function, arguments, count, place, 1);
  while (given) fx.Py_DecRef(arguments[--given]);
  if (failed) return -1;
  *result = fx_read(*place);
  if (unlocked) *thread = fx.PyEval_SaveThread();
  return 0;
}

/* The operations are those of CPython's floats, one by one. What may raise, or depends on the C library's error numbers, is
   not known, so that Python computes it. Names of the C library, which compilers do not know under these names: they would
   replace `pow(x, 2)` by a product. */
#define FX_LIBRARY(name, count) extern double fx_library_##name count __asm__(FX_SYMBOL(name))
#ifdef __APPLE__
#define FX_SYMBOL(name) "_" #name
#else
#define FX_SYMBOL(name) #name
#endif

static int fx_normal(double x) { return __builtin_isnormal(x); }

#define FX_BINARY(name, expression, condition)                                                      \
  static fx_number fx_##name(fx_number a, fx_number b) {                                            \
    const double x = a.value, y = b.value;                                                          \
    return fx_float(expression, a.known && b.known && (condition));                                 \
  }
#define FX_UNARY(name, expression, condition)                                                       \
  static fx_number fx_##name(fx_number a) {                                                         \
    const double x = a.value;                                                                       \
    return fx_float(expression, a.known && (condition));                                            \
  }
#define FX_FUNCTION(name, condition)                                                                \
  FX_LIBRARY(name, (double));                                                                       \
  static fx_number fx_##name(fx_number a) {                                                         \
    const double x = a.value, made = a.known && (condition) ? fx_library_##name(x) : 0;             \
    return fx_float(made, fx_normal(made));                                                         \
  }

FX_BINARY(add, x + y, 1)
FX_BINARY(sub, x - y, 1)
FX_BINARY(mul, x * y, 1)
FX_BINARY(truediv, x / y, y != 0)
FX_BINARY(max, y > x ? y : x, 1)
FX_BINARY(min, y < x ? y : x, 1)
FX_UNARY(neg, -x, 1)
FX_UNARY(abs, __builtin_fabs(x), 1)
FX_UNARY(sym_float, x, 1)
FX_FUNCTION(sqrt, x >= 0)
FX_FUNCTION(log, x > 0)
FX_FUNCTION(exp, fx_normal(x))
FX_FUNCTION(sin, fx_normal(x))
FX_FUNCTION(cos, fx_normal(x))
FX_FUNCTION(tanh, fx_normal(x))

FX_LIBRARY(pow, (double, double));
static fx_number fx_pow(fx_number a, fx_number b) {
  const int usual = a.known && b.known && a.value > 0 && fx_normal(a.value) && (fx_normal(b.value) || b.value == 0);
  const double made = usual ? fx_library_pow(a.value, b.value) : 0;
  return fx_float(made, fx_normal(made));
}
