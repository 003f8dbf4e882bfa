/* The next items of CPython's own iterators, read without advancing the iterator.
 *
 * The layouts below are private to listobject.c, tupleobject.c, rangeobject.c and dictobject.c. They are the
 * same in 3.11 to 3.13, except for ranges. tests/native/test_iterator_peek.py compares them with the iterators. */
#include "readers.h"

typedef struct {
    PyObject_HEAD
    Py_ssize_t index;
    PyObject *sequence; /* NULL when it is finished */
} SequenceIterator;

typedef struct {
    PyObject_HEAD
#if !FXSTACK_312
    long index;
#endif
    long start, step, length;
} RangeIterator;

typedef struct {
    PyObject_HEAD
    PyDictObject *dict; /* NULL when it is finished */
    Py_ssize_t used, position;
    PyObject *result;
    Py_ssize_t length;
} DictIterator;

static PyObject *of_list(PyObject *iterator, Py_ssize_t k) {
    SequenceIterator *it = (SequenceIterator *)iterator;
    if (it->sequence == NULL || k >= PyList_GET_SIZE(it->sequence) - it->index) return NULL;
    return Py_NewRef(PyList_GET_ITEM(it->sequence, it->index + k));
}

static PyObject *of_reversed_list(PyObject *iterator, Py_ssize_t k) {
    SequenceIterator *it = (SequenceIterator *)iterator;
    if (it->sequence == NULL || k > it->index || it->index >= PyList_GET_SIZE(it->sequence)) return NULL;
    return Py_NewRef(PyList_GET_ITEM(it->sequence, it->index - k));
}

static PyObject *of_tuple(PyObject *iterator, Py_ssize_t k) {
    SequenceIterator *it = (SequenceIterator *)iterator;
    if (it->sequence == NULL || k >= PyTuple_GET_SIZE(it->sequence) - it->index) return NULL;
    return Py_NewRef(PyTuple_GET_ITEM(it->sequence, it->index + k));
}

static PyObject *of_range(PyObject *iterator, Py_ssize_t k) {
    RangeIterator *it = (RangeIterator *)iterator;
#if FXSTACK_312
    long at = k, length = it->length;
#else
    long at = it->index + k, length = it->length;
#endif
    return at < length ? PyLong_FromLong((long)(it->start + (unsigned long)at * it->step)) : NULL;
}

static PyObject *of_dict(PyObject *iterator, Py_ssize_t k) {
    DictIterator *it = (DictIterator *)iterator;
    PyObject *key, *value;
    if (it->dict == NULL || it->used != it->dict->ma_used || k >= it->length) return NULL;
    Py_ssize_t position = it->position;
    do {
        if (!PyDict_Next((PyObject *)it->dict, &position, &key, &value)) return NULL;
    } while (k-- > 0);
    if (Py_IS_TYPE(iterator, &PyDictIterItem_Type)) return PyTuple_Pack(2, key, value);
    return Py_NewRef(Py_IS_TYPE(iterator, &PyDictIterKey_Type) ? key : value);
}

/* Returns a new reference. NULL: the item does not exist, or the iterator is of another kind. In the case of an
 * error, NULL comes with an exception. */
PyObject *upcoming_item(PyObject *iterator, Py_ssize_t k) {
    PyTypeObject *type = Py_TYPE(iterator);
    if (k < 0) return NULL;
    if (type == &PyListIter_Type) return of_list(iterator, k);
    if (type == &PyTupleIter_Type) return of_tuple(iterator, k);
    if (type == &PyRangeIter_Type) return of_range(iterator, k);
    if (type == &PyListRevIter_Type) return of_reversed_list(iterator, k);
    if (type == &PyDictIterKey_Type || type == &PyDictIterValue_Type || type == &PyDictIterItem_Type) return of_dict(iterator, k);
    return NULL;
}

static PyObject *py_upcoming(PyObject *module, PyObject *args) {
    PyObject *iterator;
    Py_ssize_t k;
    if (!PyArg_ParseTuple(args, "On:upcoming", &iterator, &k)) return NULL;
    PyObject *item = upcoming_item(iterator, k);
    if (item == NULL && !PyErr_Occurred()) PyErr_SetString(PyExc_IndexError, "the iterator has no such item");
    return item;
}

PyMethodDef iterator_peek_methods[] = {
    {"upcoming", py_upcoming, METH_VARARGS, "upcoming(iterator, k) -> the item after the next k items of the iterator; raises IndexError"},
    {NULL, NULL, 0, NULL},
};
