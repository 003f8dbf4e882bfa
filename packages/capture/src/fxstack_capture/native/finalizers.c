/* Objects whose `__del__` must never run, because proxies of the trace are not objects of the program.
 *
 * CPython finalizes an object once (PEP 442). It records this in the low bit of the word before the
 * object, the `_gc_prev` of its PyGC_Head. The layout is the same in 3.11 to 3.13. The public function
 * PyObject_GC_IsFinalized verifies the change. */
#include "native.h"

static PyObject *py_mark_finalized(PyObject *module, PyObject *obj) {
    (void)module;
    if (!PyObject_IS_GC(obj)) Py_RETURN_FALSE;
    if (PyObject_GC_IsFinalized(obj)) Py_RETURN_TRUE;
    uintptr_t *note = (uintptr_t *)obj - 1;
    *note |= 1;
    if (PyObject_GC_IsFinalized(obj)) Py_RETURN_TRUE;
    *note &= ~(uintptr_t)1;
    Py_RETURN_FALSE;
}

PyMethodDef finalizers_methods[] = {
    {"mark_finalized", py_mark_finalized, METH_O, "mark_finalized(obj): prevent the call of __del__ -> whether this succeeded"},
    {NULL, NULL, 0, NULL},
};
