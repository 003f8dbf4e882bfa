/* The functions that guards use to read tensors: a table with two implementations.
 *
 * tensor_fallback.c reads Python-level attributes and is always available. tensor_check.cpp reads the tensor
 * directly. It is compiled at first use against the installed torch, and passes its table in a capsule. */
#ifndef FXSTACK_TENSOR_API_H
#define FXSTACK_TENSOR_API_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define TENSOR_API_VERSION 4
#define TENSOR_API_CAPSULE "fxstack_capture.tensor_api"
#define ANY_NUMBER INT64_MIN /* A size, stride or offset that the guard does not check. */

typedef struct {
    PyObject *dtype, *device, *layout; /* borrowed: the tree holds them */
    uint64_t keyset;
    int requires_grad, is_leaf; /* is_leaf: -1 means that the guard does not check it. */
    int ndim, has_strides;
    int64_t storage_offset; /* or ANY_NUMBER */
    int64_t *sizes, *strides;
    /* resolve() of the compiled implementation sets these fields. */
    int resolved, dtype_code, device_type, device_index, layout_code, all_static;
} TensorDemand;

/* The part of the state in guards/torch_state.py that C code can read without calling Python, as plain numbers.
 * `exact`: no other part of the state is set (no modes, no functorch levels, no hooks). Equal numbers then mean
 * equal states. */
typedef struct {
    uint64_t included, excluded;
    int64_t numbers[12];
    int64_t exact;
} TorchNumbers;

typedef struct {
    int version;
    int (*resolve)(TensorDemand *demand);                            /* 0: the demand is not supported. */
    int (*check)(const TensorDemand *demand, PyObject *tensor);      /* 1: holds */
    int (*size)(PyObject *tensor, Py_ssize_t dim, int64_t *out);     /* 1: done */
    int (*stride)(PyObject *tensor, Py_ssize_t dim, int64_t *out);
    int (*storage_offset)(PyObject *tensor, int64_t *out);
    /* Identity of the storage. NULL: the tensor has no storage. */
    void *(*storage)(PyObject *tensor);
    /* The memory range of the tensor's storage, or of the storage object if no memory is allocated. 0: the
     * tensor has no storage. */
    int (*memory)(PyObject *tensor, uintptr_t *begin, uintptr_t *end);
    /* NULL: the check calls the Python getters. */
    void (*state)(TorchNumbers *out);
    /* A region of torch's profiler. begin_region may return NULL, and end_region takes the result of
     * begin_region. If the functions are NULL, the profiler does not see compiled code. */
    void *(*begin_region)(const char *name);
    void (*end_region)(void *region);
    /* Whether saved-tensor hooks are on in this thread. NULL: ask torch's Python function. */
    int (*has_saved_hooks)(void);
} TensorApi;
#endif
