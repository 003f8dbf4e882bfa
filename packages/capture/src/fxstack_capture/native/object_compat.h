/* Instance dictionaries and dict internals, which differ between CPython versions. */
#ifndef FXSTACK_OBJECT_COMPAT_H
#define FXSTACK_OBJECT_COMPAT_H
#include "native.h"
#include "internal/pycore_dict.h"
#include "internal/pycore_object.h"

/* The values of an instance that has no dictionary object yet, or NULL; `dict` is then its dictionary (borrowed,
 * NULL when there is none at all). Nothing is materialised. */
static inline PyDictValues *instance_values(PyObject *object, PyObject **dict) {
    PyTypeObject *type = Py_TYPE(object);
    *dict = NULL;
    if (!(type->tp_flags & Py_TPFLAGS_MANAGED_DICT)) {
        PyObject **at = _PyObject_GetDictPtr(object);
        if (at != NULL) *dict = *at;
        return NULL;
    }
#if FXSTACK_313
    *dict = (PyObject *)_PyObject_GetManagedDict(object);
    if (*dict != NULL || !(type->tp_flags & Py_TPFLAGS_INLINE_VALUES)) return NULL;
    PyDictValues *values = _PyObject_InlineValues(object);
    return values->valid ? values : NULL;
#elif FXSTACK_312
    PyDictOrValues at = *_PyObject_DictOrValuesPointer(object);
    if (_PyDictOrValues_IsValues(at)) return _PyDictOrValues_GetValues(at);
    *dict = _PyDictOrValues_GetDict(at);
    return NULL;
#else
    PyDictValues *values = *_PyObject_ValuesPointer(object);
    if (values == NULL) *dict = *_PyObject_ManagedDictPointer(object);
    return values;
#endif
}

static inline PyDictKeysObject *instance_keys(PyObject *object) {
    return ((PyHeapTypeObject *)Py_TYPE(object))->ht_cached_keys;
}

/* Whether it has no attributes of its own. */
static inline int is_bare_instance(PyObject *object) {
    PyObject *dict;
    PyDictValues *values = instance_values(object, &dict);
    if (values == NULL) return dict == NULL || PyDict_GET_SIZE(dict) == 0;
    for (Py_ssize_t i = 0; i < instance_keys(object)->dk_nentries; i++)
        if (values->values[i] != NULL) return 0;
    return 1;
}

/* dict_states.c */
extern HIDDEN int dict_states_reliable;
HIDDEN int give_own_table(PyObject *dict); /* 0: it cannot have one */

/* Where the number of a dictionary stands; NULL: it has none. */
#if FXSTACK_314
HIDDEN const uint64_t *dict_state_at(PyObject *dict);
#else
static inline const uint64_t *dict_state_at(PyObject *dict) { return &((PyDictObject *)dict)->ma_version_tag; }
#endif

/* A number that is another one after every change of a dictionary, and that no two dictionaries share; 0: it has none (dict_states.c). */
static inline uint64_t dict_version(PyObject *dict) {
    if (dict == NULL || !PyDict_CheckExact(dict) || !dict_states_reliable) return 0;
    if (unlikely(FXSTACK_313 && ((PyDictObject *)dict)->ma_values != NULL) && !give_own_table(dict)) return 0;
    const uint64_t *at = dict_state_at(dict);
    return at == NULL ? 0 : *at;
}

/* values.c: the index of a constant key in a table of keys, or -1. */
HIDDEN Py_ssize_t keys_find(PyDictKeysObject *keys, PyObject *key, Py_hash_t hash);

/* The dictionary object of an instance, made if need be; borrowed; NULL when it cannot have one. */
static inline PyObject *instance_dict(PyObject *object) {
    PyObject **at = _PyObject_GetDictPtr(object);
    if (at != NULL && *at == NULL) {
        PyObject *made = PyObject_GenericGetDict(object, NULL);
        Py_XDECREF(made);
    }
    if (PyErr_Occurred()) PyErr_Clear();
    return at ? *at : NULL;
}
#endif
