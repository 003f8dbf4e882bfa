/* Subclass checks of abstract base classes (abc.ABC). Registering a class with an abstract base class may change
 * earlier answers.
 *
 * `_abc` counts the registrations in the process. As long as the count is unchanged, all earlier answers are
 * valid. If the count has changed, the check asks the class again, as a program would. Only then can Python code
 * run (a __subclasshook__). The modes of the thread are off during a check. */
#include "guard_tree.h"

static PyObject *count_registrations, *subclass_check;
const uint64_t *registrations_word; /* Address of the counter in _abc. NULL: call _abc.get_cache_token instead. */

static uint64_t registrations(void) {
    if (likely(registrations_word != NULL)) return *registrations_word;
    PyObject *count = PyObject_CallNoArgs(count_registrations);
    uint64_t number = count ? PyLong_AsUnsignedLongLong(count) : 0;
    Py_XDECREF(count);
    return number;
}

static COLD int ask_again(PyObject *cls, PyObject *kind, int expected) {
    PyObject *arguments[] = {cls, kind};
    Py_INCREF(cls);
    Py_INCREF(kind);
    PyObject *answer = PyObject_Vectorcall(subclass_check, arguments, 2, NULL);
    Py_DECREF(cls);
    Py_DECREF(kind);
    int found = answer ? PyObject_IsTrue(answer) : -1;
    Py_XDECREF(answer);
    if (found < 0) PyErr_Clear();
    return found == expected;
}

int check_subclass_is(Test *t, const Value *v) {
    uint64_t now = registrations();
    if (v->object == NULL || !PyType_Check(v->object)) return 0;
    if (likely(t->other == v->object && (uint64_t)t->number2 == now)) return 1;
    PyObject *cls = t->weak ? weak_target(t->object) : t->object;
    if (cls == Py_None || !ask_again(cls, v->object, t->number != 0)) return 0;
    t->other = v->object; /* This pointer is only compared, never dereferenced. */
    t->number2 = (int64_t)now;
    return 1;
}

/* (cls, answer) */
int build_subclass(Tree *tree, Test *t, PyObject *args) {
    PyObject *cls = PyTuple_GET_ITEM(args, 0);
    if (!PyType_Check(cls)) return PyErr_Format(PyExc_TypeError, "%R is not a class", cls), -1;
    t->number = PyObject_IsTrue(PyTuple_GET_ITEM(args, 1));
    t->object = tree_hold_weakly(tree, cls, &t->weak);
    return t->object && t->number >= 0 ? 0 : -1;
}

/* In CPython 3.11 to 3.13, the module state of `_abc` is {type, count}. It is used only if the count agrees with
 * get_cache_token. */
static const uint64_t *find_word(PyObject *module) {
    struct { PyObject *type; uint64_t count; } *state = PyModule_GetState(module);
    PyModuleDef *definition = PyModule_GetDef(module);
    if (state == NULL || definition == NULL || definition->m_size != sizeof *state) return PyErr_Clear(), NULL;
    return state->count == registrations() && !PyErr_Occurred() ? &state->count : NULL;
}

int abc_subclass_init(void) {
    PyObject *module = PyImport_ImportModule("_abc");
    if (module == NULL) return -1;
    count_registrations = PyObject_GetAttrString(module, "get_cache_token");
    subclass_check = PyObject_GetAttrString(module, "_abc_subclasscheck");
    if (count_registrations && subclass_check) registrations_word = find_word(module);
    Py_DECREF(module);
    return count_registrations && subclass_check ? 0 : -1;
}
