/* Formulas of one number, as builtin functions. A guard computes them by Python's own operations, without a
 * frame. */
#include "guard_tree.h"

enum { LONGEST = 256 };

static PyObject *operand_of(PyObject *step, Py_ssize_t k, PyObject *const *values) {
    return values[PyLong_AsSsize_t(PyTuple_GET_ITEM(step, k))];
}

/* Each step of `program` makes a value. None is the argument, (value,) is a constant, and (function, i, ...) is
 * a call with the values of earlier steps. */
static PyObject *compute(PyObject *program, PyObject *number) {
    PyObject *values[LONGEST], *result = NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(program), made = 0;
    for (; made < count; made++) {
        PyObject *step = PyTuple_GET_ITEM(program, made), *arguments[2];
        Py_ssize_t n = step == Py_None ? 0 : PyTuple_GET_SIZE(step) - 1;
        for (Py_ssize_t k = 0; k < n; k++) arguments[k] = operand_of(step, k + 1, values);
        if (n == 0) values[made] = Py_NewRef(step == Py_None ? number : PyTuple_GET_ITEM(step, 0));
        else values[made] = PyObject_Vectorcall(PyTuple_GET_ITEM(step, 0), arguments, n, NULL);
        if (values[made] == NULL) break;
    }
    if (made == count) result = Py_NewRef(values[count - 1]);
    while (made > 0) Py_DECREF(values[--made]);
    return result;
}

static PyMethodDef formula_method = {"formula", compute, METH_O, NULL};

static int is_step(PyObject *step, Py_ssize_t before) {
    if (step == Py_None) return 1;
    if (!PyTuple_Check(step) || PyTuple_GET_SIZE(step) < 1 || PyTuple_GET_SIZE(step) > 3) return 0;
    for (Py_ssize_t k = 1; k < PyTuple_GET_SIZE(step); k++) {
        PyObject *index = PyTuple_GET_ITEM(step, k);
        Py_ssize_t at = PyLong_Check(index) ? PyLong_AsSsize_t(index) : -1;
        if (at < 0 || at >= before) return PyErr_Clear(), 0;
    }
    return 1;
}

static PyObject *py_formula(PyObject *module, PyObject *program) {
    Py_ssize_t count = PyTuple_Check(program) ? PyTuple_GET_SIZE(program) : 0, valid = 0;
    if (count <= LONGEST)
        while (valid < count && is_step(PyTuple_GET_ITEM(program, valid), valid)) valid++;
    if (valid > 0 && valid == count) return PyCFunction_New(&formula_method, program);
    return PyErr_SetString(PyExc_ValueError, "a formula is a tuple of None, (value,) and (function, i[, j]), of at most 256"), NULL;
}

PyMethodDef formulas_methods[] = {
    {"formula", py_formula, METH_O, "formula(program) -> a builtin function of one number"},
    {NULL, NULL, 0, NULL},
};
