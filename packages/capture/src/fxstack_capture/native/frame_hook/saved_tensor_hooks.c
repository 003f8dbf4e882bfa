/* Saved-tensor hooks of torch. They were on before the running Optimized call, or were entered inside of it. */
#include "frame_hook.h"
#include <string.h>

static PyObject *hooks_reader; /* function(True) -> the innermost pair of hooks, a tuple or None */
__thread PyObject *first_hooks;

PyObject *read_saved_hooks(void) {
    /* Every Optimized call gets here. Torch's Python function takes longer (0.5 us) than a call of a small
     * graph. */
    if (hooks_reader == NULL || (tensors->has_saved_hooks != NULL && !tensors->has_saved_hooks())) return Py_NewRef(Py_None);
    PyObject *const args[] = {Py_True};
    return PyObject_Vectorcall(hooks_reader, args, 1, NULL);
}

SETTER(py_use_hooks, hooks_reader)

static int are_first_hooks(PyObject *now) {
    PyObject *first = first_hooks;
    if (first == NULL) return 1;
    return PyTuple_Check(first) && PyTuple_Check(now) && PyTuple_GET_SIZE(first) == 2 && PyTuple_GET_SIZE(now) == 2 &&
           PyTuple_GET_ITEM(first, 0) == PyTuple_GET_ITEM(now, 0) && PyTuple_GET_ITEM(first, 1) == PyTuple_GET_ITEM(now, 1);
}

/* Whether the hooks are those of a forward or of a recomputation of torch.utils.checkpoint. */
static int are_of_checkpoint(PyObject *hooks) {
    PyObject *name = PyTuple_Check(hooks) ? PyObject_GetAttrString(PyTuple_GET_ITEM(hooks, 0), "__qualname__") : NULL;
    const char *text = name != NULL && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    int found = text != NULL && (strncmp(text, "_checkpoint_hook.", 17) == 0 || strncmp(text, "_recomputation_hook.", 20) == 0);
    Py_XDECREF(name);
    PyErr_Clear();
    return found;
}

static PyObject *py_hooks(PyObject *module, PyObject *unused) {
    PyObject *now = read_saved_hooks();
    if (now == NULL) return NULL;
    const char *state = now == Py_None           ? "off"
                        : !are_first_hooks(now)  ? "inside"
                        : are_of_checkpoint(now) ? "checkpoint"
                                                 : "outside";
    Py_DECREF(now);
    return PyUnicode_InternFromString(state);
}

PyMethodDef saved_hooks_methods[] = {
    {"use_hooks", py_use_hooks, METH_O, "use_hooks(function): function(True) returns the innermost saved-tensor hooks, a tuple or None"},
    {"hooks", py_hooks, METH_NOARGS, "hooks() -> 'off', 'outside', 'checkpoint' or 'inside': whether saved-tensor hooks are on, whether the running Optimized call began under them, and whether they are a checkpoint's"},
    {NULL, NULL, 0, NULL},
};
