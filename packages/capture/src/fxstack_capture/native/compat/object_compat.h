/* Instance dictionaries and dict internals, which differ between CPython versions. */
#ifndef FXSTACK_OBJECT_COMPAT_H
#define FXSTACK_OBJECT_COMPAT_H
#include "frame_compat.h"
#include "internal/pycore_dict.h"
#include "internal/pycore_object.h"

/* Returns the inline values of an instance that has no dictionary object. Otherwise returns NULL, and `dict`
 * receives the dictionary (borrowed; NULL if the instance has none). Never creates a dictionary. */
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

/* Whether the instance has no instance attributes. */
static inline int is_bare_instance(PyObject *object) {
    PyObject *dict;
    PyDictValues *values = instance_values(object, &dict);
    if (values == NULL) return dict == NULL || PyDict_GET_SIZE(dict) == 0;
    for (Py_ssize_t i = 0; i < instance_keys(object)->dk_nentries; i++)
        if (values->values[i] != NULL) return 0;
    return 1;
}

/* The dictionary object of an instance, created if necessary. Borrowed. NULL: the instance cannot have a
 * dictionary. */
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
