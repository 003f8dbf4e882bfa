/* Version numbers of dictionaries (version_skips.c). At the start, CPython's own numbers are tested for
 * reliability.
 *
 * CPython changes the number of a dictionary (ma_version_tag) with every change of the dictionary. Since 3.13
 * there is an exception: the dictionary of an object may share the inline values of the object. Storing an
 * attribute then changes these values, but not the number. Therefore such a dictionary gets its own table, as
 * CPython does when an object gets many attributes. After that, storing an attribute changes the dictionary.
 * Python code cannot observe this: the dictionary is the same object, with the same items in the same order. */
#include "readers.h"

int dict_states_reliable;

#if FXSTACK_314
/* --- version numbers on 3.14 --------------------------------------------------------------------
 *
 * 3.14 has no ma_version_tag. A dictionary whose number is requested gets a cell and a watcher. CPython
 * calls the watcher before each change, and when the dictionary is freed. Each number is used once, so a
 * cell can serve another dictionary later: a guard that recorded the old number finds another number.
 * Cells are never freed, because guards hold their addresses. */
typedef struct Cell {
    PyObject *dict;
    uint64_t number;
    struct Cell *next; /* The next cell of the bucket, or of the free list. */
} Cell;

static Cell **buckets, *unused;
static size_t bucket_count, cell_count; /* bucket_count is a power of two. */
static uint64_t last_number;
static int watcher = -1;

static inline Cell **bucket_of(PyObject *dict) { return &buckets[((uintptr_t)dict >> 4) * 0x9E3779B97F4A7C15u >> 20 & (bucket_count - 1)]; }

static inline Cell *cell_of(PyObject *dict) {
    Cell *cell = bucket_count ? *bucket_of(dict) : NULL;
    while (cell != NULL && cell->dict != dict) cell = cell->next;
    return cell;
}

static int dict_changes(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value) {
    (void)key, (void)value;
    Cell *cell = cell_of(dict);
    if (cell == NULL) return 0;
    cell->number = ++last_number;
    if (event != PyDict_EVENT_DEALLOCATED) return 0;
    Cell **at = bucket_of(dict);
    while (*at != cell) at = &(*at)->next;
    *at = cell->next;
    *cell = (Cell){NULL, cell->number, unused};
    unused = cell, cell_count--;
    return 0;
}

static int grow_buckets(void) {
    Cell **old = buckets, **grown = PyMem_Calloc(bucket_count ? 2 * bucket_count : 256, sizeof *grown);
    size_t before = bucket_count;
    if (grown == NULL) return -1;
    buckets = grown, bucket_count = before ? 2 * before : 256;
    for (size_t i = 0; i < before; i++)
        for (Cell *cell = old[i], *next; cell != NULL; cell = next) {
            next = cell->next;
            Cell **at = bucket_of(cell->dict);
            cell->next = *at, *at = cell;
        }
    PyMem_Free(old);
    return 0;
}

static COLD Cell *new_cell(PyObject *dict) {
    if (watcher < 0 || (cell_count >= bucket_count && grow_buckets() < 0)) return NULL;
    if (PyDict_Watch(watcher, dict) < 0) return PyErr_Clear(), NULL;
    Cell *cell = unused;
    if (cell != NULL) unused = cell->next;
    else if ((cell = PyMem_Malloc(sizeof *cell)) == NULL) return NULL;
    Cell **at = bucket_of(dict);
    *cell = (Cell){dict, ++last_number, *at};
    *at = cell, cell_count++;
    return cell;
}

const uint64_t *dict_state_at(PyObject *dict) {
    Cell *cell = cell_of(dict);
    if (unlikely(cell == NULL)) cell = new_cell(dict);
    return cell == NULL ? NULL : &cell->number;
}
#endif

/* `popitem` gives the dictionary its own table before it removes the last item. The item is then put back. */
int give_own_table(PyObject *dict) {
    if (PyDict_GET_SIZE(dict) == 0) return 0;
    PyObject *item = PyObject_CallMethod(dict, "popitem", NULL);
    int ok = item != NULL && PyDict_SetItem(dict, PyTuple_GET_ITEM(item, 0), PyTuple_GET_ITEM(item, 1)) == 0;
    Py_XDECREF(item);
    PyErr_Clear();
    return ok && ((PyDictObject *)dict)->ma_values == NULL;
}

/* --- testing CPython ----------------------------------------------------------------------------- */

static const char *SETUP_CODE = "class C: pass\n"
                                 "def store(o):\n"
                                 "    for i in range(20): o.a = i\n"
                                 "o, other = C(), C()\n"
                                 "store(o); vars(other); store(other); store(C())\n"
                                 "of_o, d = vars(o), {1: 2}\n";

static const struct { const char *dict, *change; } CHANGES[] = {
    {"of_o", "o.a = 1"}, {"of_o", "o.b = 1"}, {"of_o", "del o.b"}, {"of_o", "of_o['a'] = 2"}, {"of_o", "of_o.update(a=3)"},
    {"of_o", "object.__setattr__(o, 'a', 4)"}, {"of_o", "store(o)"}, {"of_o", "of_o.pop('a')"}, {"of_o", "o.a = 5"},
    {"of_o", "of_o.popitem()"}, {"of_o", "of_o.update(a=3)"}, {"of_o", "of_o.clear()"}, {"d", "d[1] = 3"}, {"d", "d[2] = 3"},
    {"d", "del d[2]"}, {"d", "d.setdefault(3, 4)"}, {"d", "d |= {1: 5}"}, {"d", "d.popitem()"}, {"d", "d.clear()"},
    {"d", "d.update({1: 1})"}, {"globals", "global_name = 1"}, {"globals", "del global_name"},
};

static int is_change_noticed(PyObject *globals, const char *name, const char *change) {
    PyObject *dict = strcmp(name, "globals") == 0 ? globals : PyDict_GetItemString(globals, name);
    uint64_t before = dict_version(dict);
    PyObject *done = before && before == dict_version(dict) ? PyRun_String(change, Py_file_input, globals, globals) : NULL;
    Py_XDECREF(done);
    return done != NULL && dict_version(dict) != before;
}

/* Whether each kind of change gives a new number. */
static int are_changes_noticed(void) {
    PyObject *globals = PyDict_New();
    PyObject *done = globals && PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0
                         ? PyRun_String(SETUP_CODE, Py_file_input, globals, globals) : NULL;
    int all = done != NULL;
    for (size_t i = 0; all && i < sizeof CHANGES / sizeof *CHANGES; i++) all = is_change_noticed(globals, CHANGES[i].dict, CHANGES[i].change);
    Py_XDECREF(done);
    Py_XDECREF(globals);
    PyErr_Clear();
    return all;
}

void dict_states_init(void) {
#if FXSTACK_314
    watcher = PyDict_AddWatcher(dict_changes);
    if (watcher < 0) PyErr_Clear(); /* No watcher is free, so no dictionary has a number. */
#endif
    dict_states_reliable = 1;
    dict_states_reliable = are_changes_noticed();
}

static PyObject *py_dict_state(PyObject *module, PyObject *dict) {
    return PyLong_FromUnsignedLongLong(dict_version(dict));
}

PyMethodDef dict_states_methods[] = {
    {"dict_state", py_dict_state, METH_O, "dict_state(dict) -> version number, which every change of the dictionary replaces; 0 if the dictionary has none"},
    {NULL, NULL, 0, NULL},
};
