/* The walk over the objects that C code may reach from its arguments. calls/scan.py documents it, and has a
 * Python version.
 *
 * No code of the program runs during the walk, so every object that the walk reaches stays alive and unchanged. */
#include "readers.h"

/* The code that calls/scan.py assigns to a class: how to walk its instances, and flags in the higher bits. */
enum { WALK_NOT, WALK_LIST, WALK_TUPLE, WALK_DICT, WALK_ITEMS, WALK_RECEIVER, WALK_MASK = 7, FLAGS_SHIFT = 3 };
enum { FLAG_PYTHON = 2, FLAG_LAZY = 4 };

typedef struct {
    PyObject **items;
    Py_ssize_t count, room;
} Work;

typedef struct {
    PyObject **slots; /* Open addressing. NULL marks a free slot. */
    Py_ssize_t count, room;
} Seen;

typedef struct {
    PyObject *codes, *lazy, *opaque, *found, *classify;
    int every, keys_only;
    Work work;
    Seen seen, classes;
    long flags;
} Scan;

static int work_add(Work *work, PyObject *value) {
    if (work->count == work->room) {
        Py_ssize_t room = work->room ? work->room * 2 : 64;
        PyObject **items = PyMem_Realloc(work->items, room * sizeof *items);
        if (items == NULL) return PyErr_NoMemory(), -1;
        work->items = items, work->room = room;
    }
    work->items[work->count++] = value;
    return 0;
}

static PyObject **seen_slot(PyObject **slots, Py_ssize_t room, PyObject *value) {
    size_t at = ((uintptr_t)value >> 4) * 0x9E3779B97F4A7C15u;
    for (at >>= 20;; at++) {
        PyObject **slot = &slots[at & (room - 1)];
        if (*slot == NULL || *slot == value) return slot;
    }
}

static int seen_grow(Seen *seen) {
    Py_ssize_t room = seen->room ? seen->room * 2 : 64;
    PyObject **slots = PyMem_Calloc(room, sizeof *slots);
    if (slots == NULL) return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < seen->room; i++)
        if (seen->slots[i]) *seen_slot(slots, room, seen->slots[i]) = seen->slots[i];
    PyMem_Free(seen->slots);
    seen->slots = slots, seen->room = room;
    return 0;
}

/* Returns 1: the value is new, 0: the value was already there, -1: an exception. */
static int seen_add(Seen *seen, PyObject *value) {
    if (seen->count * 2 >= seen->room && seen_grow(seen) < 0) return -1;
    PyObject **slot = seen_slot(seen->slots, seen->room, value);
    if (*slot != NULL) return 0;
    *slot = value;
    seen->count++;
    return 1;
}

static long code_of_class(Scan *scan, PyTypeObject *cls) {
    PyObject *code = PyDict_GetItemWithError(scan->codes, (PyObject *)cls);
    if (likely(code != NULL)) return PyLong_AsLong(code);
    if (PyErr_Occurred()) return -1;
    code = PyObject_CallOneArg(scan->classify, (PyObject *)cls);
    if (code == NULL) return -1;
    long result = PyDict_SetItem(scan->codes, (PyObject *)cls, code) < 0 ? -1 : PyLong_AsLong(code);
    Py_DECREF(code);
    return result;
}

static int has_id(PyObject *ids, PyObject *value) {
    int is_dict = PyDict_CheckExact(ids);
    if ((is_dict ? PyDict_GET_SIZE(ids) : PySet_GET_SIZE(ids)) == 0) return 0;
    PyObject *key = PyLong_FromVoidPtr(value);
    if (key == NULL) return -1;
    int has = is_dict ? PyDict_Contains(ids, key) : PySet_Contains(ids, key);
    Py_DECREF(key);
    return has;
}

/* Records one instance of each class, and each opaque object. One instance is enough to know the effects of its
 * class. */
static int note_python(Scan *scan, PyObject *value) {
    int add = scan->every ? 1 : seen_add(&scan->classes, (PyObject *)Py_TYPE(value));
    if (add == 0) add = has_id(scan->opaque, value);
    return add > 0 ? PyList_Append(scan->found, value) : add;
}

static int walk_iterable(Scan *scan, PyObject *value) {
    PyObject *iterator = PyObject_GetIter(value), *item;
    if (iterator == NULL) return -1;
    while ((item = PyIter_Next(iterator)) != NULL) {
        int failed = work_add(&scan->work, item);
        Py_DECREF(item); /* The container holds a reference. */
        if (failed) break;
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? -1 : 0;
}

static int walk_dict(Scan *scan, PyObject *mapping, int keys_only) {
    PyObject *key, *value;
    Py_ssize_t position = 0;
    int lazy = has_id(scan->lazy, mapping);
    if (lazy < 0) return -1;
    if (lazy) scan->flags |= FLAG_LAZY;
    while (PyDict_Next(mapping, &position, &key, &value))
        if (work_add(&scan->work, key) < 0 || (!keys_only && work_add(&scan->work, value) < 0)) return -1;
    return 0;
}

static int walk(Scan *scan, PyObject *value, long how, int keys_only) {
    Py_ssize_t n;
    switch (how) {
    case WALK_LIST:
        n = PyList_GET_SIZE(value);
        for (Py_ssize_t i = 0; i < n; i++)
            if (work_add(&scan->work, PyList_GET_ITEM(value, i)) < 0) return -1;
        return 0;
    case WALK_TUPLE:
        n = PyTuple_GET_SIZE(value);
        for (Py_ssize_t i = 0; i < n; i++)
            if (work_add(&scan->work, PyTuple_GET_ITEM(value, i)) < 0) return -1;
        return 0;
    case WALK_DICT: return walk_dict(scan, value, keys_only);
    case WALK_ITEMS: return walk_iterable(scan, value);
    case WALK_RECEIVER: return PyCFunction_GET_SELF(value) ? work_add(&scan->work, PyCFunction_GET_SELF(value)) : 0;
    default: return 0;
    }
}

static int scan_one(Scan *scan, PyObject *value, int keys_only) {
    long code = code_of_class(scan, Py_TYPE(value));
    if (code <= 0) return code < 0 ? -1 : 0;
    long flags = code >> FLAGS_SHIFT, how = code & WALK_MASK;
    if (how != WALK_NOT || (flags & FLAG_PYTHON && scan->every)) {
        int is_new = seen_add(&scan->seen, value);
        if (is_new <= 0) return is_new;
    }
    scan->flags |= flags;
    if (flags & FLAG_PYTHON && note_python(scan, value) < 0) return -1;
    return walk(scan, value, how, keys_only);
}

static PyObject *scan_values(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 8 || !PyDict_CheckExact(args[0]) || !PyDict_CheckExact(args[1]) || !PyAnySet_Check(args[2]) ||
        !PyTuple_CheckExact(args[3]) || !PyList_CheckExact(args[4]))
        return PyErr_SetString(PyExc_TypeError, "scan(codes, lazy, opaque, values, found, every, keys_only, classify)"), NULL;
    Scan scan = {.codes = args[0], .lazy = args[1], .opaque = args[2], .found = args[4], .classify = args[7]};
    scan.every = args[5] == Py_True, scan.keys_only = args[6] == Py_True;
    PyObject *values = args[3];
    int ok = 1;
    for (Py_ssize_t i = 0; ok && i < PyTuple_GET_SIZE(values); i++)
        ok = scan_one(&scan, PyTuple_GET_ITEM(values, i), i == 0 && scan.keys_only) == 0;
    while (ok && scan.work.count > 0) ok = scan_one(&scan, scan.work.items[--scan.work.count], 0) == 0;
    PyMem_Free(scan.work.items);
    PyMem_Free(scan.seen.slots);
    PyMem_Free(scan.classes.slots);
    return ok ? PyLong_FromLong(scan.flags) : NULL;
}

PyMethodDef scan_methods[] = {
    {"scan", (PyCFunction)(void (*)(void))scan_values, METH_FASTCALL,
     "scan(codes, lazy, opaque, values, found, every, keys_only, classify): see calls/scan.py"},
    {NULL},
};
