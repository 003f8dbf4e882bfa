/* Access to plain Python values that never runs Python code: equality of constants, dict and set access. */
#include "readers.h"
#include <string.h>

PyTypeObject *deque_type;

/* --- constants ----------------------------------------------------------------------------------- */

static int all_constant(PyObject *const *items, Py_ssize_t n) {
    for (Py_ssize_t i = 0; i < n; i++)
        if (!is_constant(items[i])) return 0;
    return 1;
}

static int set_is_constant(PyObject *set) {
    Py_ssize_t position = 0;
    PyObject *key;
    Py_hash_t hash;
    while (_PySet_NextEntry(set, &position, &key, &hash))
        if (!is_constant(key)) return 0;
    return 1;
}

/* Immutable types whose comparison is C code that never raises: torch.dtype, torch.device. */
static PyTypeObject *literal_types[8];
static int literal_count;

static int is_literal(PyObject *o) {
    for (int i = 0; i < literal_count; i++)
        if (Py_IS_TYPE(o, literal_types[i])) return 1;
    return 0;
}

static PyObject *py_use_literals(PyObject *module, PyObject *types) {
    Py_ssize_t n = PyTuple_Check(types) ? PyTuple_GET_SIZE(types) : 9;
    if (n > 8) return PyErr_SetString(PyExc_TypeError, "use_literals takes a tuple of at most 8 types"), NULL;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *type = PyTuple_GET_ITEM(types, i);
        if (!PyType_Check(type) || ((PyTypeObject *)type)->tp_flags & (Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_HAVE_GC))
            return PyErr_Format(PyExc_TypeError, "%R is not a static type whose objects refer to no other objects", type), NULL;
        literal_types[i] = (PyTypeObject *)Py_NewRef(type);
    }
    literal_count = (int)n;
    Py_RETURN_NONE;
}

PyMethodDef values_methods[] = {
    {"use_literals", py_use_literals, METH_O, "use_literals(types): make the objects of these types constants"},
    {NULL, NULL, 0, NULL},
};

/* Whether it is None, bool, int, float, complex, str, bytes, Ellipsis, NotImplemented or a torch literal,
 * or a tuple, frozenset or slice of constants. Only exact types count. */
int is_constant(PyObject *o) {
    if (o == Py_None || o == Py_Ellipsis || o == Py_NotImplemented || PyBool_Check(o) || PyLong_CheckExact(o) ||
        PyFloat_CheckExact(o) || PyComplex_CheckExact(o) || PyUnicode_CheckExact(o) || PyBytes_CheckExact(o))
        return 1;
    if (PyTuple_CheckExact(o)) return all_constant(((PyTupleObject *)o)->ob_item, PyTuple_GET_SIZE(o));
    if (PyFrozenSet_CheckExact(o)) return set_is_constant(o);
    if (PySlice_Check(o)) {
        PySliceObject *s = (PySliceObject *)o;
        return is_constant(s->start) && is_constant(s->stop) && is_constant(s->step);
    }
    return is_literal(o);
}

static int same_double(double a, double b) {
    return (a != a && b != b) || memcmp(&a, &b, sizeof a) == 0; /* -0.0 differs from 0.0. NaN equals NaN. */
}

/* For types whose comparison is C code that never raises. */
static int same_by_type(PyObject *a, PyObject *b) {
    PyObject *r = Py_TYPE(a)->tp_richcompare(a, b, Py_EQ);
    Py_XDECREF(r);
    if (r == NULL) PyErr_Clear();
    return r == Py_True;
}

static int same_items(PyObject *a, PyObject *b) {
    Py_ssize_t n = PyTuple_GET_SIZE(a);
    if (n != PyTuple_GET_SIZE(b)) return 0;
    for (Py_ssize_t i = 0; i < n; i++)
        if (!same_constant(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return 0;
    return 1;
}

/* Compares keys in the way of a dict or set (1 equals True), but runs no __eq__ method of the program. */
static int same_key(PyObject *a, PyObject *b) {
    if (a == b) return 1;
    if (PyUnicode_CheckExact(a) && PyUnicode_CheckExact(b)) return PyUnicode_Compare(a, b) == 0;
    if (!is_constant(a) || !is_constant(b)) return 0;
    int same = PyObject_RichCompareBool(a, b, Py_EQ);
    if (same < 0) PyErr_Clear();
    return same == 1;
}

/* The search of setobject.c (the same in 3.11 to 3.13), with a comparison that runs no __eq__ of the program. */
static int set_search(PyObject *set, PyObject *key, Py_hash_t hash, int (*same)(PyObject *, PyObject *)) {
    enum { LINEAR_PROBES = 9, PERTURB_SHIFT = 5 };
    PySetObject *so = (PySetObject *)set;
    size_t mask = so->mask, i = (size_t)hash & mask, perturb = (size_t)hash;
    for (;;) {
        setentry *entry = &so->table[i];
        int probes = i + LINEAR_PROBES <= mask ? LINEAR_PROBES : 0;
        do {
            if (entry->hash == 0 && entry->key == NULL) return 0;
            if (entry->hash == hash && entry->key != NULL && (entry->key == key || same(entry->key, key))) return 1;
            entry++;
        } while (probes--);
        perturb >>= PERTURB_SHIFT;
        i = (i * 5 + 1 + perturb) & mask;
    }
}

int set_has(PyObject *set, PyObject *key, Py_hash_t hash) { return set_search(set, key, hash, same_key); }

static int same_set(PyObject *a, PyObject *b) {
    if (PySet_GET_SIZE(a) != PySet_GET_SIZE(b)) return 0;
    Py_ssize_t position = 0;
    PyObject *key;
    Py_hash_t hash;
    while (_PySet_NextEntry(a, &position, &key, &hash))
        if (!set_search(b, key, hash, same_constant)) return 0;
    return 1;
}

int same_constant(PyObject *a, PyObject *b) {
    if (a == b) return 1;
    PyTypeObject *type = Py_TYPE(a);
    if (type != Py_TYPE(b)) return 0;
    if (type == &PyUnicode_Type || type == &PyLong_Type || type == &PyBytes_Type) return same_by_type(a, b);
    if (type == &PyFloat_Type) return same_double(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
    if (type == &PyComplex_Type) {
        Py_complex x = ((PyComplexObject *)a)->cval, y = ((PyComplexObject *)b)->cval;
        return same_double(x.real, y.real) && same_double(x.imag, y.imag);
    }
    /* torch.Size and named tuples are compared by items. Their types are equal at this point. */
    if (PyTuple_Check(a)) return same_items(a, b);
    if (type == &PyFrozenSet_Type) return same_set(a, b);
    if (type == &PySlice_Type) {
        PySliceObject *x = (PySliceObject *)a, *y = (PySliceObject *)b;
        return same_constant(x->start, y->start) && same_constant(x->stop, y->stop) && same_constant(x->step, y->step);
    }
    /* Comparisons of other static types are C code as well. They are safe for objects that hold no other objects
     * (torch.device). */
    if (!(type->tp_flags & (Py_TPFLAGS_HEAPTYPE | Py_TPFLAGS_HAVE_GC)) && type->tp_richcompare) return same_by_type(a, b);
    return 0;
}

/* --- containers ---------------------------------------------------------------------------------- */

int plain_length(PyObject *o, Py_ssize_t *length) {
    if (PyList_Check(o) || PyTuple_Check(o)) *length = Py_SIZE(o);
    else if (PyDict_Check(o)) *length = ((PyDictObject *)o)->ma_used;
    else if (PyAnySet_Check(o)) *length = PySet_GET_SIZE(o);
    else if (PyObject_TypeCheck(o, deque_type)) *length = deque_type->tp_as_sequence->sq_length(o);
    else if (PyUnicode_Check(o)) *length = PyUnicode_GET_LENGTH(o);
    else if (PyBytes_Check(o) || PyByteArray_Check(o)) *length = Py_SIZE(o);
    else return 0;
    return 1;
}

static inline PyObject *entry_key(PyDictKeysObject *keys, Py_ssize_t i) {
    return DK_IS_UNICODE(keys) ? DK_UNICODE_ENTRIES(keys)[i].me_key : DK_ENTRIES(keys)[i].me_key;
}

static inline PyObject *entry_value(PyDictObject *d, Py_ssize_t i) {
    if (d->ma_values != NULL) return d->ma_values->values[i];
    return DK_IS_UNICODE(d->ma_keys) ? DK_UNICODE_ENTRIES(d->ma_keys)[i].me_value : DK_ENTRIES(d->ma_keys)[i].me_value;
}

static inline Py_ssize_t stored_index(PyDictKeysObject *keys, size_t i) {
    int log2 = DK_LOG_SIZE(keys);
    if (log2 < 8) return ((int8_t *)keys->dk_indices)[i];
    if (log2 < 16) return ((int16_t *)keys->dk_indices)[i];
    if (log2 < 32) return ((int32_t *)keys->dk_indices)[i];
    return ((int64_t *)keys->dk_indices)[i];
}

static inline int entry_matches(PyDictKeysObject *keys, Py_ssize_t i, PyObject *key, Py_hash_t hash) {
    PyObject *other = entry_key(keys, i);
    if (likely(other == key)) return 1;
    if (other == NULL) return 0;
    Py_hash_t h = DK_IS_UNICODE(keys) ? ((PyASCIIObject *)other)->hash : DK_ENTRIES(keys)[i].me_hash;
    return h == hash && same_key(other, key);
}

/* The search of dictobject.c (the same in 3.11 to 3.13), with a comparison that runs no __eq__ of the program. */
Py_ssize_t keys_find(PyDictKeysObject *keys, PyObject *key, Py_hash_t hash) {
    enum { PERTURB_SHIFT = 5 };
    size_t mask = (size_t)DK_SIZE(keys) - 1, perturb = (size_t)hash, i = (size_t)hash & mask;
    for (;;) {
        Py_ssize_t at = stored_index(keys, i);
        if (at >= 0 && entry_matches(keys, at, key, hash)) return at;
        if (at == DKIX_EMPTY) return -1;
        perturb >>= PERTURB_SHIFT;
        i = (i * 5 + perturb + 1) & mask;
    }
}

/* Returns the value of a constant key. The position of the last lookup is tried first. */
PyObject *dict_find(PyObject *dict, PyObject *key, Py_hash_t hash, Py_ssize_t *hint) {
    PyDictObject *d = (PyDictObject *)dict;
    Py_ssize_t i = *hint;
    if (likely(i < d->ma_keys->dk_nentries) && likely(entry_matches(d->ma_keys, i, key, hash))) {
        PyObject *value = entry_value(d, i);
        if (likely(value != NULL)) return value;
    }
    i = keys_find(d->ma_keys, key, hash);
    if (i < 0) return NULL;
    *hint = i;
    return entry_value(d, i);
}

static int ordered_dict_entry(PyObject *dict, Py_ssize_t index, PyObject **key, PyObject **value) {
    PyObject *iterator = PyODict_Type.tp_iter(dict);
    for (*key = NULL; iterator != NULL; index--) {
        *key = Py_TYPE(iterator)->tp_iternext(iterator);
        if (*key == NULL || index == 0) break;
        Py_CLEAR(*key);
    }
    Py_XDECREF(iterator);
    if (PyErr_Occurred()) PyErr_Clear();
    if (*key == NULL) return 0;
    if (value == NULL) return 1;
    /* This lookup compares by identity, because the key is the stored object itself. */
    *value = Py_XNewRef(PyDict_GetItemWithError(dict, *key));
    if (*value != NULL) return 1;
    PyErr_Clear();
    Py_CLEAR(*key);
    return 0;
}

int entry_at(PyObject *container, Py_ssize_t index, PyObject **key, PyObject **value) {
    Py_ssize_t position = 0;
    PyObject *k, *v;
    Py_hash_t hash;
    if (PyODict_Check(container)) return ordered_dict_entry(container, index, key, value);
    if (PyDict_Check(container)) {
        /* If no entry follows the first ``end`` positions, none was deleted, and the entry is at position ``index``. */
        Py_ssize_t end = PyDict_GET_SIZE(container);
        if (index < end && !PyDict_Next(container, &end, &k, &v)) position = index, index = 0;
        while (PyDict_Next(container, &position, &k, &v)) {
            if (index-- > 0) continue;
            *key = Py_NewRef(k);
            if (value != NULL) *value = Py_NewRef(v);
            return 1;
        }
    } else if (PyAnySet_Check(container) && value == NULL) {
        while (_PySet_NextEntry(container, &position, &k, &hash))
            if (index-- == 0) return (*key = Py_NewRef(k)) != NULL;
    }
    return 0;
}

int values_init(void) {
    PyObject *collections = PyImport_ImportModule("collections");
    deque_type = collections ? (PyTypeObject *)PyObject_GetAttrString(collections, "deque") : NULL;
    Py_XDECREF(collections);
    return deque_type ? 0 : -1;
}
