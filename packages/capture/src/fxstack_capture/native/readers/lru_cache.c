/* The results in a functools.lru_cache, read without calling the cache. A call would have effects: it would
 * count a hit, move the key to the end, or call the function.
 *
 * CPython has no API for this. In 3.11 to 3.13 the wrapper has a dictionary from keys to results. If the size is
 * limited, the dictionary maps keys to the links of a linked list, and each link holds a result. use_caches()
 * finds the offsets of these pointers from two caches with known content. Without the offsets, nothing is read. */
#include "readers.h"

PyObject *answer_not_cached;

/* Offsets in bytes from the start of a wrapper, and of a link. 0: unknown. */
static Py_ssize_t dict_at, result_at;
static PyTypeObject *wrapper_type, *link_type;

static PyObject *word_at(PyObject *object, Py_ssize_t offset) {
    return *(PyObject **)((char *)object + offset);
}

static Py_ssize_t find_word(PyObject *object, PyObject *value) {
    Py_ssize_t end = Py_TYPE(object)->tp_basicsize - (Py_ssize_t)sizeof value;
    for (Py_ssize_t at = sizeof(PyObject); at <= end; at += sizeof value)
        if (word_at(object, at) == value) return at;
    return 0;
}

/* The result that `wrapper` holds for `key`, as a borrowed reference. NULL: there is none, or a comparison
 * raised an exception. */
static PyObject *held(PyObject *wrapper, PyObject *key) {
    PyObject *dict = dict_at && Py_IS_TYPE(wrapper, wrapper_type) ? word_at(wrapper, dict_at) : NULL;
    PyObject *found = dict && PyDict_CheckExact(dict) ? PyDict_GetItemWithError(dict, key) : NULL;
    return found && Py_IS_TYPE(found, link_type) ? word_at(found, result_at) : found;
}

PyObject *cached_result(PyObject *wrapper, PyObject *key) {
    PyObject *found = held(wrapper, key);
    return found || PyErr_Occurred() ? found : answer_not_cached;
}

static PyObject *py_cached(PyObject *module, PyObject *const *args, Py_ssize_t count) {
    if (count != 2) return PyErr_Format(PyExc_TypeError, "cached(wrapper, key) takes two arguments, not %zd", count);
    return Py_XNewRef(cached_result(args[0], args[1]));
}

/* Arguments: (limited, limited's dictionary, its only result, unlimited, unlimited's dictionary), from two
 * caches that hold one result each. */
static PyObject *py_use_caches(PyObject *module, PyObject *args) {
    PyObject *limited, *links, *result, *unlimited, *results, *key;
    if (!PyArg_ParseTuple(args, "OO!OOO!", &limited, &PyDict_Type, &links, &result, &unlimited, &PyDict_Type, &results)) return NULL;
    Py_ssize_t place = 0, at = find_word(limited, links);
    PyObject *link = NULL;
    if (!at || Py_TYPE(limited) != Py_TYPE(unlimited) || find_word(unlimited, results) != at) Py_RETURN_FALSE;
    if (!PyDict_Next(links, &place, &key, &link) || !(result_at = find_word(link, result))) Py_RETURN_FALSE;
    wrapper_type = (PyTypeObject *)Py_NewRef(Py_TYPE(limited));
    link_type = (PyTypeObject *)Py_NewRef(Py_TYPE(link));
    dict_at = at;
    Py_RETURN_TRUE;
}

PyMethodDef lru_cache_methods[] = {
    {"cached", (PyCFunction)(void (*)(void))py_cached, METH_FASTCALL, "cached(wrapper, key) -> the result that the functools.lru_cache has for the key, or NOT_CACHED"},
    {"use_caches", py_use_caches, METH_VARARGS, "use_caches(limited, links, result, unlimited, results) -> whether the memory layout of the two caches is known"},
    {NULL, NULL, 0, NULL},
};
