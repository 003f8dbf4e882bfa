/* Readers of objects that run no Python code: plain values, dictionaries, caches, iterators and tensors. */
#ifndef FXSTACK_READERS_H
#define FXSTACK_READERS_H
#include "compat/object_compat.h"
#include "tensor_api.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define COLD __attribute__((noinline, cold))
#define HIDDEN __attribute__((visibility("hidden")))

/* --- values.c: comparisons that run no Python code -------------------------------------------------- */

HIDDEN extern PyTypeObject *deque_type;
HIDDEN int values_init(void);
HIDDEN int is_constant(PyObject *object);
/* Whether both have the same type and are equal. Objects that are not constants are compared by identity. */
HIDDEN int same_constant(PyObject *a, PyObject *b);
/* 1: the object is a container of a known kind. */
HIDDEN int plain_length(PyObject *container, Py_ssize_t *length);
HIDDEN PyObject *dict_find(PyObject *dict, PyObject *key, Py_hash_t hash, Py_ssize_t *hint); /* borrowed or NULL */
HIDDEN int set_has(PyObject *set, PyObject *key, Py_hash_t hash);
/* the index-th key (and value, if asked for) of a dict or set; owned references; 1: found */
HIDDEN int entry_at(PyObject *container, Py_ssize_t index, PyObject **key, PyObject **value);
/* The index of a constant key in a table of keys, or -1. */
HIDDEN Py_ssize_t keys_find(PyDictKeysObject *keys, PyObject *key, Py_hash_t hash);

/* --- dict_states.c -------------------------------------------------------------------------------- */

extern HIDDEN int dict_states_reliable;
HIDDEN int give_own_table(PyObject *dict); /* 0: the dictionary cannot have its own table. */

/* Address of the version number of a dictionary. NULL: it has none. */
#if FXSTACK_314
HIDDEN const uint64_t *dict_state_at(PyObject *dict);
#else
static inline const uint64_t *dict_state_at(PyObject *dict) { return &((PyDictObject *)dict)->ma_version_tag; }
#endif

/* The version number of a dictionary. Every change of the dictionary changes the number, and no two
 * dictionaries share a number. 0: the dictionary has no number (dict_states.c). */
static inline uint64_t dict_version(PyObject *dict) {
    if (dict == NULL || !PyDict_CheckExact(dict) || !dict_states_reliable) return 0;
    if (unlikely(FXSTACK_313 && ((PyDictObject *)dict)->ma_values != NULL) && !give_own_table(dict)) return 0;
    const uint64_t *at = dict_state_at(dict);
    return at == NULL ? 0 : *at;
}
HIDDEN void dict_states_init(void);

/* --- lru_cache.c, iterator_peek.c ----------------------------------------------------------------- */

HIDDEN extern PyObject *answer_not_cached; /* the sentinel NOT_CACHED */
HIDDEN PyObject *cached_result(PyObject *wrapper, PyObject *key); /* borrowed; answer_not_cached; NULL with an exception */
HIDDEN PyObject *upcoming_item(PyObject *iterator, Py_ssize_t k); /* a new reference or NULL */

/* --- tensor_fallback.c ---------------------------------------------------------------------------- */

HIDDEN extern const TensorApi *tensors;
HIDDEN extern PyTypeObject *tensor_base;
HIDDEN int tensor_fallback_init(void);

static inline int is_tensor(PyObject *object) {
    return object != NULL && tensor_base != NULL && PyObject_TypeCheck(object, tensor_base);
}

extern HIDDEN PyMethodDef values_methods[], dict_states_methods[], lru_cache_methods[], iterator_peek_methods[], tensor_methods[], scan_methods[];

#endif
