/* The arguments of a frame that has not started, as Python objects. */
#include "frame_hook.h"

PyObject *frame_locals(InterpreterFrame *f) {
    PyCodeObject *code = frame_code(f);
    PyObject *locals = PyDict_New();
    if (locals == NULL) return NULL;
    int n = code_argument_slots(code);
    for (int i = 0; i < n; i++) {
        PyObject *value = slot_object(f->localsplus[i]);
        PyObject *name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
        if (value && PyDict_SetItem(locals, name, value) < 0) {
            Py_DECREF(locals);
            return NULL;
        }
    }
    return locals;
}

/* The values [*positional, *varargs] of a frame that has not started. */
PyObject *positional_arguments(PyCodeObject *code, const Slot *slots) {
    PyObject *rest = NULL;
    Py_ssize_t extra = 0;
    if (code->co_flags & CO_VARARGS) {
        rest = slot_object(slots[code->co_argcount + code->co_kwonlyargcount]);
        extra = PyTuple_GET_SIZE(rest);
    }
    PyObject *args = PyTuple_New(code->co_argcount + extra);
    if (args == NULL) return NULL;
    for (int i = 0; i < code->co_argcount; i++) PyTuple_SET_ITEM(args, i, Py_NewRef(slot_object(slots[i])));
    for (Py_ssize_t i = 0; i < extra; i++)
        PyTuple_SET_ITEM(args, code->co_argcount + i, Py_NewRef(PyTuple_GET_ITEM(rest, i)));
    return args;
}

PyObject *keyword_arguments(PyCodeObject *code, const Slot *slots) {
    PyObject *kwargs = PyDict_New();
    if (kwargs == NULL) return NULL;
    for (int i = code->co_argcount; i < code->co_argcount + code->co_kwonlyargcount; i++)
        if (PyDict_SetItem(kwargs, PyTuple_GET_ITEM(code->co_localsplusnames, i), slot_object(slots[i])) < 0) goto fail;
    if (code->co_flags & CO_VARKEYWORDS) {
        PyObject *rest = slot_object(slots[code_argument_slots(code) - 1]);
        if (PyDict_Update(kwargs, rest) < 0) goto fail;
    }
    return kwargs;
fail:
    Py_DECREF(kwargs);
    return NULL;
}
