/* Passthrough: the files whose frames run for real, with every mode off, while intercept mode is on. */
#include "frame_hook.h"
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    PyObject *prefixes, *excepted;
    uint64_t key; /* Unique in the process, so that cached decisions never apply to another Passthrough. */
} Passthrough;

static PyObject *passthrough_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"prefixes", "excepted", NULL};
    static uint64_t last_key;
    PyObject *prefixes, *excepted = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|O!:Passthrough", names, &PyTuple_Type, &prefixes, &PyTuple_Type, &excepted))
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(prefixes); i++)
        if (!PyUnicode_Check(PyTuple_GET_ITEM(prefixes, i)))
            return PyErr_SetString(PyExc_TypeError, "prefixes must be a tuple of str"), NULL;
    Passthrough *p = (Passthrough *)type->tp_alloc(type, 0);
    if (p == NULL) return NULL;
    p->prefixes = Py_NewRef(prefixes);
    p->excepted = Py_XNewRef(excepted);
    p->key = ++last_key;
    return (PyObject *)p;
}

static void passthrough_dealloc(Passthrough *p) {
    Py_DECREF(p->prefixes);
    Py_XDECREF(p->excepted);
    Py_TYPE(p)->tp_free(p);
}

int passthrough_decides(PyObject *passthrough, PyCodeObject *code) {
    Passthrough *p = (Passthrough *)passthrough;
    CodeState *state = code_state_make(code);
    if (state == NULL) return -1;
    if (state->passthrough_key == p->key) return state->passthrough;
    int decision = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(p->prefixes) && !decision; i++)
        decision = PyUnicode_Tailmatch(code->co_filename, PyTuple_GET_ITEM(p->prefixes, i), 0, PY_SSIZE_T_MAX, -1) == 1;
    for (Py_ssize_t i = 0; p->excepted && i < PyTuple_GET_SIZE(p->excepted) && decision; i++)
        decision = PyTuple_GET_ITEM(p->excepted, i) != (PyObject *)code;
    state->passthrough_key = p->key;
    return state->passthrough = decision;
}

static PyMemberDef passthrough_members[] = {
    {"prefixes", T_OBJECT, offsetof(Passthrough, prefixes), READONLY, "file name prefixes"},
    {NULL, 0, 0, 0, NULL},
};
PyTypeObject Passthrough_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fxstack_capture._native.Passthrough",
    .tp_doc = "Passthrough(prefixes, excepted=()): code in files with these prefixes, except the code objects `excepted`, is not "
              "intercepted, and neither are its callees.",
    .tp_basicsize = sizeof(Passthrough),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = passthrough_new,
    .tp_dealloc = (destructor)passthrough_dealloc,
    .tp_members = passthrough_members,
};
