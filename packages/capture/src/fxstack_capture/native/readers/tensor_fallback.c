/* Tensor properties without torch's headers, read through attributes: several hundred nanoseconds for each
 * tensor.
 *
 * Used until the compiled checks (tensor_check.cpp) are loaded, and on machines without a C++ compiler.
 * Every read is between torch_function_disable and torch_function_restore, so that no __torch_function__ of the program is called. */
#include "readers.h"

PyTypeObject *tensor_base;
static PyObject *dispatch_keys; /* torch._C._dispatch_keys */
static PyObject *disable;       /* torch._C.DisableTorchFunction */
static PyObject *name_enter, *name_exit, *name_dtype, *name_device, *name_layout, *name_requires_grad, *name_is_leaf, *name_shape, *name_stride,
    *name_storage_offset, *name_raw_repr, *name_untyped_storage, *name_cdata, *name_nbytes, *name_data_ptr;

/* Disables __torch_function__ until torch_function_restore receives the result. On failure, returns NULL with an
 * error. */
static PyObject *torch_function_disable(void) {
    PyObject *region = disable ? PyObject_CallNoArgs(disable) : NULL;
    PyObject *entered = region ? PyObject_CallMethodNoArgs(region, name_enter) : NULL;
    if (entered == NULL) Py_CLEAR(region);
    Py_XDECREF(entered);
    return region;
}

static void torch_function_restore(PyObject *region) {
    PyObject *type, *value, *traceback;
    if (region == NULL) return;
    PyErr_Fetch(&type, &value, &traceback);
    PyObject *left = PyObject_CallMethodObjArgs(region, name_exit, Py_None, Py_None, Py_None, NULL);
    if (left == NULL) PyErr_Clear();
    Py_XDECREF(left);
    Py_DECREF(region);
    PyErr_Restore(type, value, traceback);
}

static int attribute_same(PyObject *o, PyObject *name, PyObject *expected) {
    PyObject *value = PyObject_GetAttr(o, name);
    int same = value != NULL && same_constant(expected, value);
    Py_XDECREF(value);
    return same;
}

static int call_number(PyObject *o, PyObject *name, int64_t *out) {
    PyObject *value = PyObject_CallMethodNoArgs(o, name);
    if (value == NULL) return 0;
    *out = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return !PyErr_Occurred();
}

static int numbers_same(PyObject *tuple, const int64_t *expected, int n) {
    if (tuple == NULL || !PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) != n) return 0;
    for (int i = 0; i < n; i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        if (!PyLong_CheckExact(item)) return 0;
        if (expected[i] != ANY_NUMBER && PyLong_AsLongLong(item) != expected[i]) return 0;
    }
    return !PyErr_Occurred();
}

static int keyset_same(PyObject *o, uint64_t expected) {
    PyObject *keys = PyObject_CallOneArg(dispatch_keys, o);
    PyObject *raw = keys ? PyObject_CallMethodNoArgs(keys, name_raw_repr) : NULL;
    int same = raw != NULL && PyLong_AsUnsignedLongLong(raw) == expected && !PyErr_Occurred();
    Py_XDECREF(keys);
    Py_XDECREF(raw);
    return same;
}

static int demand_holds(const TensorDemand *d, PyObject *o) {
    if (!attribute_same(o, name_dtype, d->dtype) || !attribute_same(o, name_device, d->device) ||
        !attribute_same(o, name_layout, d->layout) || !keyset_same(o, d->keyset) ||
        !attribute_same(o, name_requires_grad, d->requires_grad ? Py_True : Py_False))
        return 0;
    if (d->is_leaf >= 0 && !attribute_same(o, name_is_leaf, d->is_leaf ? Py_True : Py_False)) return 0;
    PyObject *shape = PyObject_GetAttr(o, name_shape);
    int same = numbers_same(shape, d->sizes, d->ndim);
    Py_XDECREF(shape);
    if (same && d->has_strides) {
        PyObject *strides = PyObject_CallMethodNoArgs(o, name_stride);
        same = numbers_same(strides, d->strides, d->ndim);
        Py_XDECREF(strides);
    }
    int64_t offset;
    if (same && d->storage_offset != ANY_NUMBER)
        same = call_number(o, name_storage_offset, &offset) && offset == d->storage_offset;
    return same;
}

static int fallback_check(const TensorDemand *d, PyObject *o) {
    PyObject *region = torch_function_disable();
    int same = region != NULL && demand_holds(d, o);
    torch_function_restore(region);
    if (PyErr_Occurred()) return PyErr_Clear(), 0;
    return same;
}

static int fallback_resolve(TensorDemand *d) {
    (void)d; /* The demand stays unresolved. When the compiled checks are loaded, they resolve it. */
    return 1;
}

static int tuple_number(PyObject *tuple, Py_ssize_t dim, int64_t *out) {
    int ok = tuple != NULL && PyTuple_Check(tuple) && dim >= -PyTuple_GET_SIZE(tuple) && dim < PyTuple_GET_SIZE(tuple);
    if (ok) *out = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, dim < 0 ? dim + PyTuple_GET_SIZE(tuple) : dim));
    Py_XDECREF(tuple);
    if (PyErr_Occurred()) return PyErr_Clear(), 0;
    return ok;
}

static int fallback_size(PyObject *o, Py_ssize_t dim, int64_t *out) {
    PyObject *region = torch_function_disable();
    int ok = tuple_number(PyObject_GetAttr(o, name_shape), dim, out);
    return torch_function_restore(region), ok;
}

static int fallback_stride(PyObject *o, Py_ssize_t dim, int64_t *out) {
    PyObject *region = torch_function_disable();
    int ok = tuple_number(PyObject_CallMethodNoArgs(o, name_stride), dim, out);
    return torch_function_restore(region), ok;
}

static int fallback_offset(PyObject *o, int64_t *out) {
    PyObject *region = torch_function_disable();
    int ok = call_number(o, name_storage_offset, out);
    if (!ok) PyErr_Clear();
    return torch_function_restore(region), ok;
}

static PyObject *storage_of(PyObject *o) {
    PyObject *region = torch_function_disable();
    PyObject *storage = region ? PyObject_CallMethodNoArgs(o, name_untyped_storage) : NULL;
    return torch_function_restore(region), storage;
}

static void *fallback_storage(PyObject *o) {
    PyObject *storage = storage_of(o);
    PyObject *address = storage ? PyObject_GetAttr(storage, name_cdata) : NULL;
    void *pointer = address ? PyLong_AsVoidPtr(address) : NULL;
    Py_XDECREF(storage);
    Py_XDECREF(address);
    if (PyErr_Occurred()) PyErr_Clear();
    return pointer;
}

static int storage_number(PyObject *storage, PyObject *name, uintptr_t *out) {
    PyObject *number = storage ? PyObject_CallMethodNoArgs(storage, name) : NULL;
    if (number == NULL) return 0;
    *out = (uintptr_t)PyLong_AsVoidPtr(number);
    Py_DECREF(number);
    return !PyErr_Occurred();
}

static int fallback_memory(PyObject *o, uintptr_t *begin, uintptr_t *end) {
    uintptr_t bytes = 0;
    PyObject *storage = storage_of(o);
    int ok = storage_number(storage, name_nbytes, &bytes) && bytes > 0 && storage_number(storage, name_data_ptr, begin) && *begin;
    Py_XDECREF(storage);
    if (PyErr_Occurred()) PyErr_Clear();
    if (!ok) *begin = (uintptr_t)fallback_storage(o);
    *end = *begin + (ok ? bytes : 1);
    return *begin != 0;
}

static const TensorApi fallback = {
    TENSOR_API_VERSION, fallback_resolve, fallback_check,   fallback_size,
    fallback_stride,    fallback_offset,  fallback_storage, fallback_memory, NULL,
};
const TensorApi *tensors = &fallback;

/* --- functions of the module --------------------------------------------------------------------- */

static PyObject *py_use_tensors(PyObject *module, PyObject *args) {
    PyObject *base, *keys, *disabler, *capsule = Py_None;
    if (!PyArg_ParseTuple(args, "O!OO|O:use_tensors", &PyType_Type, &base, &keys, &disabler, &capsule)) return NULL;
    const TensorApi *api = &fallback;
    if (capsule != Py_None) {
        api = PyCapsule_GetPointer(capsule, TENSOR_API_CAPSULE);
        if (api == NULL) return NULL;
        if (api->version != TENSOR_API_VERSION)
            return PyErr_SetString(PyExc_ValueError, "the compiled tensor checks are of another version"), NULL;
        Py_INCREF(capsule); /* The module keeps this reference forever, because trees may use the table at any time. */
    }
    Py_INCREF(base);
    Py_INCREF(keys);
    Py_XSETREF(tensor_base, (PyTypeObject *)base);
    Py_XSETREF(dispatch_keys, keys);
    Py_INCREF(disabler);
    Py_XSETREF(disable, disabler);
    tensors = api;
    Py_RETURN_NONE;
}

static int tensor_argument(PyObject *o) {
    if (is_tensor(o)) return 1;
    PyErr_Format(PyExc_TypeError, "expected a tensor, got %.200s", Py_TYPE(o)->tp_name);
    return 0;
}

static PyObject *py_storage_key(PyObject *module, PyObject *o) {
    return tensor_argument(o) ? PyLong_FromVoidPtr(tensors->storage(o)) : NULL;
}

PyMethodDef tensor_methods[] = {
    {"use_tensors", py_use_tensors, METH_VARARGS, "use_tensors(TensorBase, dispatch_keys, DisableTorchFunction, capsule=None)"},
    {"storage_key", py_storage_key, METH_O, "storage_key(tensor) -> the identity of the tensor's storage that guards compare, 0 if the tensor has no storage"},
    {NULL, NULL, 0, NULL},
};

int tensor_fallback_init(void) {
    const struct { PyObject **at; const char *name; } names[] = {
        {&name_enter, "__enter__"}, {&name_exit, "__exit__"}, {&name_dtype, "dtype"}, {&name_device, "device"}, {&name_layout, "layout"}, {&name_requires_grad, "requires_grad"},
        {&name_is_leaf, "is_leaf"}, {&name_shape, "shape"}, {&name_stride, "stride"}, {&name_storage_offset, "storage_offset"},
        {&name_raw_repr, "raw_repr"}, {&name_untyped_storage, "untyped_storage"}, {&name_cdata, "_cdata"},
        {&name_nbytes, "nbytes"}, {&name_data_ptr, "data_ptr"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((*names[i].at = PyUnicode_InternFromString(names[i].name)) == NULL) return -1;
    return 0;
}
