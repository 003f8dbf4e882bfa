/* The extension module fxstack_capture._native. native/__init__.py documents its functions and classes. */
#include "frame_hook/frame_hook.h"

/* Objects whose `__del__` must never run. They are proxies of the trace, and no objects of the program.
 *
 * CPython finalizes an object once (PEP 442). It records this in the low bit of the word before the object, the
 * `_gc_prev` of its PyGC_Head. The layout is the same in 3.11 to 3.13. The public function
 * PyObject_GC_IsFinalized verifies the change. */
static PyObject *py_mark_finalized(PyObject *module, PyObject *obj) {
    if (!PyObject_IS_GC(obj)) Py_RETURN_FALSE;
    if (PyObject_GC_IsFinalized(obj)) Py_RETURN_TRUE;
    uintptr_t *note = (uintptr_t *)obj - 1;
    *note |= 1;
    if (PyObject_GC_IsFinalized(obj)) Py_RETURN_TRUE;
    *note &= ~(uintptr_t)1;
    Py_RETURN_FALSE;
}

static PyMethodDef module_methods[] = {
    {"mark_finalized", py_mark_finalized, METH_O, "mark_finalized(obj): prevent the call of __del__ -> whether this succeeded"},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "fxstack_capture._native",
    .m_doc = "Frame hook and guard engine; use fxstack_capture.native.",
    .m_size = -1,
    .m_methods = module_methods,
};

static PyObject *add_answer(PyObject *module, const char *name) {
    PyObject *type = PyObject_GetAttrString(module, "Answer");
    PyObject *answer = type ? PyObject_CallFunction(type, "s", name) : NULL;
    Py_XDECREF(type);
    if (answer && PyModule_AddObjectRef(module, name, answer) < 0) Py_CLEAR(answer);
    return answer; /* The module keeps this reference forever. */
}

/* SKIP, RUN and NOT_CACHED are instances of a subclass of str. Therefore they have a readable repr, and no other
 * object can be identical to them by accident. */
static int add_answers(PyObject *module) {
    PyObject *type = PyObject_CallFunction((PyObject *)&PyType_Type, "s(O){s:s}", "Answer", &PyUnicode_Type, "__module__",
                                           "fxstack_capture._native");
    if (type == NULL) return -1;
    int failed = PyModule_AddObjectRef(module, "Answer", type) < 0;
    Py_DECREF(type);
    if (failed) return -1;
    answer_skip = add_answer(module, "SKIP");
    answer_run = add_answer(module, "RUN");
    answer_not_cached = add_answer(module, "NOT_CACHED");
    return answer_skip && answer_run && answer_not_cached ? 0 : -1;
}

static int fill(PyObject *module) {
    PyTypeObject *types[] = {&Entry_Type, &Owner_Type, &Tree_Type, &Optimized_Type, &Disabled_Type, &Watched_Type,
                             &Passthrough_Type};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (PyModule_AddType(module, types[i]) < 0) return -1;
    PyMethodDef *methods[] = {
        hook_methods, entries_methods, scopes_methods, saved_hooks_methods, tree_methods, formulas_methods,
        values_methods, dict_states_methods, lru_cache_methods, iterator_peek_methods, tensor_methods, scan_methods,
    };
    PyObject *name = PyUnicode_FromString("fxstack_capture._native");
    for (size_t i = 0; name && i < sizeof methods / sizeof *methods; i++)
        if (PyModule_AddFunctions(module, methods[i]) < 0) return Py_DECREF(name), -1;
    Py_XDECREF(name);
    dict_states_init();
    if (scopes_init() < 0) return -1;
    return name && add_answers(module) == 0 && entries_init() == 0 ? tree_init() : -1;
}

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && fill(module) < 0) Py_CLEAR(module);
    return module;
}
