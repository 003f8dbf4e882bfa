/* The checks of one tensor and of torch's global state. */
#include "guard_tree.h"
#include <string.h>

/* The check tests only once whether the class is a tensor class. A tensor class always stays a tensor class,
 * because otherwise the memory layout of its instances would change. */
int check_tensor_is(Test *t, const Value *v) {
    if (v->object == NULL || !holds_object(t->object, t->weak, (PyObject *)Py_TYPE(v->object))) return 0;
    if (unlikely(!t->tensor->resolved) && !(is_tensor(v->object) && tensors->resolve(t->tensor))) return 0;
    return tensors->check(t->tensor, v->object);
}

/* --- torch state --------------------------------------------------------------------------------- */

/* If the expected value is a class, each instance of the class is accepted. */
static int is_expected(PyObject *expected, PyObject *value) {
    return PyType_Check(expected) ? (PyObject *)Py_TYPE(value) == expected : same_constant(expected, value);
}

static int getters_agree(PyObject *getters, PyObject *modes, PyObject *mode_at) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(getters); i++) {
        PyObject *item = PyTuple_GET_ITEM(getters, i); /* (function, args, expected) */
        PyObject *value = PyObject_Call(PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1), NULL);
        int same = value != NULL && is_expected(PyTuple_GET_ITEM(item, 2), value);
        Py_XDECREF(value);
        if (!same) return 0;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(modes); i++) {
        PyObject *index = PyLong_FromSsize_t(i);
        PyObject *mode = index ? PyObject_CallOneArg(mode_at, index) : NULL;
        int same = mode == PyTuple_GET_ITEM(modes, i);
        Py_XDECREF(index);
        Py_XDECREF(mode);
        if (!same) return 0;
    }
    return 1;
}

/* If `exact` is set, equal numbers mean equal states. Otherwise the getters decide, and the check then records
 * the new numbers. */
int check_torch_state(Test *t, const Value *v) {
    TorchNumbers now;
    int numbers = tensors->state != NULL;
    if (likely(numbers)) {
        tensors->state(&now);
        if (likely(t->numbers->exact && memcmp(&now, t->numbers, sizeof now) == 0)) return 1;
    }
    PyObject *getters = PyTuple_GET_ITEM(t->object, 0), *modes = PyTuple_GET_ITEM(t->object, 1);
    int ok = getters_agree(getters, modes, PyTuple_GET_ITEM(t->object, 2));
    if (PyErr_Occurred()) PyErr_Clear();
    if (ok && numbers) *t->numbers = now;
    return ok;
}

/* --- building ------------------------------------------------------------------------------------ */

static int fill_numbers(PyObject *source, int64_t *out) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(source); i++) {
        PyObject *item = PyTuple_GET_ITEM(source, i);
        out[i] = item == Py_None ? ANY_NUMBER : PyLong_AsLongLong(item);
        if (PyErr_Occurred()) return -1;
    }
    return 0;
}

/* Arguments: (cls, keyset, dtype, device, layout, requires_grad, sizes, strides or None, offset or None,
 * is_leaf or None). */
int build_tensor(Tree *tree, Test *t, PyObject *args) {
    TensorDemand *d = t->tensor = PyMem_Calloc(1, sizeof *d);
    if (d == NULL) return PyErr_NoMemory(), -1;
    PyObject *cls, *dtype, *device, *layout, *sizes, *strides, *offset, *leaf;
    unsigned long long keyset;
    if (!PyArg_ParseTuple(args, "O!KOOOpO!OOO", &PyType_Type, &cls, &keyset, &dtype, &device, &layout, &d->requires_grad,
                          &PyTuple_Type, &sizes, &strides, &offset, &leaf))
        return -1;
    if (tensor_base == NULL || !PyType_IsSubtype((PyTypeObject *)cls, tensor_base))
        return PyErr_Format(PyExc_TypeError, "%R is not a tensor class", cls), -1;
    d->keyset = keyset;
    d->is_leaf = leaf == Py_None ? -1 : PyObject_IsTrue(leaf);
    d->ndim = (int)PyTuple_GET_SIZE(sizes);
    d->has_strides = PyTuple_Check(strides) && PyTuple_GET_SIZE(strides) == d->ndim;
    d->storage_offset = offset == Py_None ? ANY_NUMBER : PyLong_AsLongLong(offset);
    d->sizes = PyMem_Calloc(2 * d->ndim + 1, sizeof *d->sizes);
    if (d->sizes == NULL) return PyErr_NoMemory(), -1;
    d->strides = d->sizes + d->ndim;
    if (fill_numbers(sizes, d->sizes) < 0 || (d->has_strides && fill_numbers(strides, d->strides) < 0)) return -1;
    d->dtype = tree_hold(tree, dtype);
    d->device = tree_hold(tree, device);
    d->layout = tree_hold(tree, layout);
    t->object = tree_hold_weakly(tree, cls, &t->weak);
    return d->dtype && d->device && d->layout && t->object && !PyErr_Occurred() ? 0 : -1;
}

int build_state(Tree *tree, Test *t, PyObject *args) {
    PyObject *getters, *modes, *mode_at;
    if (!PyArg_ParseTuple(args, "O!O!O", &PyTuple_Type, &getters, &PyTuple_Type, &modes, &mode_at)) return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(getters); i++) {
        PyObject *item = PyTuple_GET_ITEM(getters, i);
        if (!PyTuple_Check(item) || PyTuple_GET_SIZE(item) != 3 || !PyTuple_Check(PyTuple_GET_ITEM(item, 1)))
            return PyErr_SetString(PyExc_TypeError, "each getter must be a tuple (function, args, expected)"), -1;
    }
    t->numbers = PyMem_Calloc(1, sizeof *t->numbers);
    t->object = tree_hold(tree, args);
    return t->numbers && t->object ? 0 : -1;
}
