/* The extension module fxstack_capture._native. native/__init__.py documents its functions and classes. */
#include "native.h"

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "fxstack_capture._native",
    .m_doc = "Frame hook and guard engine; use fxstack_capture.native.",
    .m_size = -1,
};

static PyObject *add_answer(PyObject *module, const char *name) {
    PyObject *type = PyObject_GetAttrString(module, "Answer");
    PyObject *answer = type ? PyObject_CallFunction(type, "s", name) : NULL;
    Py_XDECREF(type);
    if (answer && PyModule_AddObjectRef(module, name, answer) < 0) Py_CLEAR(answer);
    return answer; /* The module keeps this reference forever. */
}

/* SKIP, RUN and NOT_CACHED are instances of a subclass of str. They have a readable repr, and no other
 * object is accidentally identical to them. */
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
    PyMethodDef *methods[] = {entries_methods, scopes_methods,  finalizers_methods, upcoming_methods,
                              tree_methods,    tensor_methods, dict_states_methods, scan_methods,     cached_methods,
                              values_methods,  formulas_methods};
    PyObject *name = PyUnicode_FromString("fxstack_capture._native");
    for (size_t i = 0; name && i < sizeof methods / sizeof *methods; i++)
        if (PyModule_AddFunctions(module, methods[i]) < 0) return Py_DECREF(name), -1;
    Py_XDECREF(name);
    dict_states_init();
    if (scopes_init() < 0) return -1;
    return name && add_answers(module) == 0 && entries_init() == 0 ? tree_init(module) : -1;
}

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && fill(module) < 0) Py_CLEAR(module);
    return module;
}
