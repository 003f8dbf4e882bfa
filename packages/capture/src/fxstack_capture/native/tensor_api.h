/* What guards ask of tensors: a table of functions with two implementations.
 *
 * tensor_fallback.c goes through Python-level attributes and is always there; tensor_check.cpp reads the tensor
 * directly, is compiled at first use against the torch that is installed, and hands its table over in a capsule. */
#ifndef FXSTACK_TENSOR_API_H
#define FXSTACK_TENSOR_API_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define TENSOR_API_VERSION 2
#define TENSOR_API_CAPSULE "fxstack_capture.tensor_api"
#define ANY_NUMBER INT64_MIN /* a size, stride or offset that is not demanded */

typedef struct {
    PyObject *dtype, *device, *layout; /* borrowed: the tree holds them */
    uint64_t keyset;
    int requires_grad, is_leaf; /* is_leaf: -1 not demanded */
    int ndim, has_strides;
    int64_t storage_offset; /* or ANY_NUMBER */
    int64_t *sizes, *strides;
    /* filled in by resolve() of the compiled implementation */
    int resolved, dtype_code, device_type, device_index, layout_code, all_static;
} TensorDemand;

/* Everything in guards/torch_state.py that can be read without a call into Python, as plain numbers. `exact`: nothing else
 * of the state is set (no modes, no functorch levels, no hooks), so that equal numbers mean equal states. */
typedef struct {
    uint64_t included, excluded;
    int64_t numbers[12];
    int64_t exact;
} TorchNumbers;

typedef struct {
    int version;
    int (*resolve)(TensorDemand *demand);                            /* 0: this demand is not understood */
    int (*check)(const TensorDemand *demand, PyObject *tensor);      /* 1: holds */
    int (*size)(PyObject *tensor, Py_ssize_t dim, int64_t *out);     /* 1: done */
    int (*stride)(PyObject *tensor, Py_ssize_t dim, int64_t *out);
    int (*storage_offset)(PyObject *tensor, int64_t *out);
    void *(*storage)(PyObject *tensor);                              /* identity of the storage; NULL: has none */
    /* The bytes of its storage, or of the storage's record where no memory is behind it. 0: has no storage */
    int (*memory)(PyObject *tensor, uintptr_t *begin, uintptr_t *end);
    void (*state)(TorchNumbers *out);                                /* NULL: ask the getters */
} TensorApi;
#endif
