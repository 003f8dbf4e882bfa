/* Numbers for the states of dictionaries (settled.c): CPython's own, asked once whether they can be relied upon.
 *
 * CPython gives a dictionary a new number (ma_version_tag) at every change. From 3.13 on there is a gap: the dictionary of an object
 * shares the object's inline values, and storing an attribute changes them without the number. Such a dictionary is given a table of
 * its own, as CPython does when an object gets many attributes; from then on storing an attribute changes the dictionary. Nothing of
 * this can be seen from Python: the dictionary is the same object, with the same items in the same order. */
#include "object_compat.h"
#include "tree.h"

int dict_states_reliable;

/* `popitem` makes a table of its own before it takes the last item, which is put back. */
int give_own_table(PyObject *dict) {
    if (PyDict_GET_SIZE(dict) == 0) return 0;
    PyObject *item = PyObject_CallMethod(dict, "popitem", NULL);
    int ok = item != NULL && PyDict_SetItem(dict, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1)) == 0;
    Py_XDECREF(item);
    PyErr_Clear();
    return ok && ((PyDictObject *)dict)->ma_values == NULL;
}

/* --- asking CPython ------------------------------------------------------------------------------ */

static const char *preparation = "class C: pass\n"
                                 "def store(o):\n"
                                 "    for i in range(20): o.a = i\n"
                                 "o, other = C(), C()\n"
                                 "store(o); vars(other); store(other); store(C())\n"
                                 "of_o, d = vars(o), {1: 2}\n";

static const struct { const char *dict, *change; } samples[] = {
    {"of_o", "o.a = 1"}, {"of_o", "o.b = 1"}, {"of_o", "del o.b"}, {"of_o", "of_o['a'] = 2"}, {"of_o", "of_o.update(a=3)"},
    {"of_o", "object.__setattr__(o, 'a', 4)"}, {"of_o", "store(o)"}, {"of_o", "of_o.pop('a')"}, {"of_o", "o.a = 5"},
    {"of_o", "of_o.popitem()"}, {"of_o", "of_o.update(a=3)"}, {"of_o", "of_o.clear()"}, {"d", "d[1] = 3"}, {"d", "d[2] = 3"},
    {"d", "del d[2]"}, {"d", "d.setdefault(3, 4)"}, {"d", "d |= {1: 5}"}, {"d", "d.popitem()"}, {"d", "d.clear()"},
    {"d", "d.update({1: 1})"}, {"globals", "global_name = 1"}, {"globals", "del global_name"},
};

static int tells(PyObject *globals, const char *name, const char *change) {
    PyObject *dict = strcmp(name, "globals") == 0 ? globals : PyDict_GetItemString(globals, name);
    uint64_t before = dict_version(dict);
    PyObject *done = before && before == dict_version(dict) ? PyRun_String(change, Py_file_input, globals, globals) : NULL;
    Py_XDECREF(done);
    return done != NULL && dict_version(dict) != before;
}

/* Whether every kind of change gives a new number. */
static int tells_of_all(void) {
    PyObject *globals = PyDict_New();
    PyObject *done = globals && PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0
                         ? PyRun_String(preparation, Py_file_input, globals, globals) : NULL;
    int all = done != NULL;
    for (size_t i = 0; all && i < sizeof samples / sizeof *samples; i++) all = tells(globals, samples[i].dict, samples[i].change);
    Py_XDECREF(done);
    Py_XDECREF(globals);
    PyErr_Clear();
    return all;
}

void dict_states_init(void) {
    dict_states_reliable = 1;
    dict_states_reliable = tells_of_all();
}

static PyObject *py_dict_state(PyObject *module, PyObject *dict) {
    (void)module;
    return PyLong_FromUnsignedLongLong(dict_version(dict));
}

PyMethodDef dict_states_methods[] = {
    {"dict_state", py_dict_state, METH_O, "dict_state(dict) -> number of its state, another one after every change; 0: it has none"},
    {NULL, NULL, 0, NULL},
};
