/* Compiled entries: the replacement code of each code object, and its lifetime.
 *
 * An owner holds groups. A group holds the entries of the owner for one code object. The co_extra of the code
 * object points to its groups without owning them, because the garbage collector does not see co_extra. */
#include "frame_hook.h"
#include <structmember.h>

PyObject *answer_skip, *answer_run;
static Py_ssize_t extra_index = -1;
static int extra_is_direct; /* Whether co_extra has the layout CoExtra. */

/* --- code objects -------------------------------------------------------------------------------- */

/* Private to codeobject.c. Unchanged since 3.6. */
typedef struct { Py_ssize_t size; void *extras[1]; } CoExtra;

CodeState *code_state(PyCodeObject *code) {
    if (likely(extra_is_direct)) {
        CoExtra *extra = (CoExtra *)code->co_extra;
        if (extra == NULL || extra->size <= extra_index) return NULL;
        return (CodeState *)extra->extras[extra_index];
    }
    void *state = NULL;
    if (get_code_extra((PyObject *)code, extra_index, &state) < 0) PyErr_Clear();
    return (CodeState *)state;
}

CodeState *code_state_make(PyCodeObject *code) {
    CodeState *state = code_state(code);
    if (state != NULL) return state;
    state = PyMem_Calloc(1, sizeof *state);
    if (state == NULL) return (CodeState *)PyErr_NoMemory();
    state->code = code;
    if (set_code_extra((PyObject *)code, extra_index, state) < 0) {
        PyMem_Free(state);
        return NULL;
    }
    return state;
}

/* --- groups -------------------------------------------------------------------------------------- */

static Group *group_make(CodeState *state, Owner *owner) {
    Group *g = find_group(state, (PyObject *)owner);
    if (g != NULL) return g;
    g = PyMem_Calloc(1, sizeof *g);
    if (g == NULL) return (Group *)PyErr_NoMemory();
    g->owner = owner;
    g->state = state;
    g->sibling = state->groups;
    state->groups = g;
    g->next = owner->groups;
    if (g->next) g->next->previous = g;
    owner->groups = g;
    return g;
}

/* Removes a group from both lists, and then releases its entries. The release of an entry may run arbitrary
 * code. */
static void group_drop(Group *g) {
    g->state->changes++;
    for (Group **at = &g->state->groups; *at != NULL; at = &(*at)->sibling)
        if (*at == g) {
            *at = g->sibling;
            break;
        }
    if (g->previous) g->previous->next = g->next;
    else g->owner->groups = g->next;
    if (g->next) g->next->previous = g->previous;
    for (int i = 0; i < g->count; i++) g->entries[i]->group = NULL;
    for (int i = 0; i < g->count; i++) Py_DECREF(g->entries[i]);
    PyMem_Free(g->entries);
    PyMem_Free(g);
}

static void code_state_free(void *pointer) {
    CodeState *state = pointer;
    if (state == NULL) return;
    while (state->groups != NULL) group_drop(state->groups);
    PyMem_Free(state);
}

/* --- installing ---------------------------------------------------------------------------------- */

static int same_freevars(PyCodeObject *a, PyCodeObject *b) {
    if (a->co_nfreevars != b->co_nfreevars) return 0;
    for (int i = 1; i <= a->co_nfreevars; i++) {
        PyObject *x = PyTuple_GET_ITEM(a->co_localsplusnames, a->co_nlocalsplus - i);
        PyObject *y = PyTuple_GET_ITEM(b->co_localsplusnames, b->co_nlocalsplus - i);
        if (x != y && PyUnicode_Compare(x, y) != 0) return 0;
    }
    return 1;
}

/* The reason why `code` cannot replace `original`, or NULL. */
static const char *misfit(PyCodeObject *original, PyCodeObject *code) {
    const int shape = CO_VARARGS | CO_VARKEYWORDS;
    const int function = CO_OPTIMIZED | CO_NEWLOCALS;
    const int generator = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR;
    if ((original->co_flags & function) != function) return "the original code is not a function body";
    if ((code->co_flags & function) != function) return "the replacement code is not a function body";
    if ((original->co_flags | code->co_flags) & generator) return "generators and coroutines are not replaced";
    if (original->co_argcount != code->co_argcount) return "co_argcount differs";
    if (original->co_kwonlyargcount != code->co_kwonlyargcount) return "co_kwonlyargcount differs";
    if ((original->co_flags & shape) != (code->co_flags & shape)) return "*args or **kwargs differ";
    if (!same_freevars(original, code)) return "free variables differ";
    return NULL;
}

static int group_add(Group *g, Entry *e) {
    static uint64_t installed;
    if (g->count == g->room) {
        int room = g->room ? 2 * g->room : 2;
        Entry **entries = PyMem_Realloc(g->entries, room * sizeof *entries);
        if (entries == NULL) return PyErr_NoMemory(), -1;
        g->entries = entries;
        g->room = room;
    }
    memmove(&g->entries[1], &g->entries[0], g->count * sizeof *g->entries);
    g->entries[0] = (Entry *)Py_NewRef((PyObject *)e);
    g->count++;
    g->state->changes++;
    e->age = installed++;
    e->group = g;
    return 0;
}

int entry_install(PyCodeObject *code, Entry *entry) {
    PyObject *owner = weak_target(entry->owner);
    if (owner == Py_None) return PyErr_SetString(PyExc_ValueError, "the owner of this entry no longer exists"), -1;
    if (entry->group != NULL) return PyErr_SetString(PyExc_ValueError, "this entry is already installed"), -1;
    const char *why = misfit(code, entry->code);
    if (why != NULL)
        return PyErr_Format(PyExc_ValueError, "the replacement code does not fit %U: %s", code->co_qualname, why), -1;
    CodeState *state = code_state_make(code);
    Group *group = state ? group_make(state, (Owner *)owner) : NULL;
    if (group == NULL || group_add(group, entry) < 0) return -1;
    /* Make future frames of the original code large enough, so that the replacement code fits in place. */
    Py_ssize_t grow = code_framesize(entry->code) - code_framesize(code);
    if (grow > 0) code_grow_framesize(code, grow);
    return 0;
}

void entry_uninstall(Entry *entry) {
    Group *g = entry->group;
    if (g == NULL) return;
    for (int i = 0; i < g->count; i++) {
        if (g->entries[i] != entry) continue;
        memmove(&g->entries[i], &g->entries[i + 1], (g->count - i - 1) * sizeof *g->entries);
        g->count--;
        g->state->changes++;
        entry->group = NULL;
        Py_DECREF(entry);
        return;
    }
}

int code_skip(PyCodeObject *code, PyObject *owner) {
    CodeState *state = code_state_make(code);
    if (state == NULL) return -1;
    if (owner == NULL) {
        state->skip_all = 1;
        return 0;
    }
    Group *g = group_make(state, (Owner *)owner);
    if (g == NULL) return -1;
    g->skip = 1;
    return 0;
}

/* --- Entry --------------------------------------------------------------------------------------- */

PyCodeObject *entry_flat_code(Entry *e) {
    if (e->flat != NULL) return e->flat;
    PyCodeObject *c = e->code;
    PyObject *replace = PyObject_GetAttrString((PyObject *)c, "replace");
    PyObject *changes = Py_BuildValue("{s:i,s:i,s:i,s:i}", "co_argcount", code_argument_slots(c) + e->takes_inputs, "co_kwonlyargcount", 0,
                                      "co_posonlyargcount", 0, "co_flags", c->co_flags & ~(CO_VARARGS | CO_VARKEYWORDS));
    PyObject *nothing = PyTuple_New(0);
    if (replace && changes && nothing) {
        e->flat = (PyCodeObject *)PyObject_Call(replace, nothing, changes);
        if (e->flat && code_skip(e->flat, NULL) < 0) Py_CLEAR(e->flat);
    }
    Py_XDECREF(replace);
    Py_XDECREF(changes);
    Py_XDECREF(nothing);
    return e->flat;
}

/* Called when an object to which a guard refers weakly has been freed. */
static void entry_lost(void *pointer) {
    Entry *e = pointer;
    if (e->group != NULL) e->group->lost++;
    entry_uninstall(e);
}

static PyObject *entry_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"owner", "tree", "code", "takes_inputs", NULL};
    PyObject *owner, *tree, *code;
    int takes_inputs = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO!|p:Entry", names, &Owner_Type, &owner, &tree, &PyCode_Type, &code,
                                     &takes_inputs))
        return NULL;
    if (takes_inputs && (tree == Py_None || code_argument_slots((PyCodeObject *)code) >= ((PyCodeObject *)code)->co_nlocals))
        return PyErr_SetString(PyExc_ValueError, "takes_inputs requires a tree, and code with a local variable that is not an argument"), NULL;
    if (tree != Py_None && !PyObject_TypeCheck(tree, &Tree_Type))
        return PyErr_SetString(PyExc_TypeError, "tree must be a Tree or None"), NULL;
    PyObject *reference = PyWeakref_NewRef(owner, NULL);
    Entry *e = reference ? (Entry *)type->tp_alloc(type, 0) : NULL;
    if (e == NULL) return Py_XDECREF(reference), NULL;
    e->owner = reference;
    e->takes_inputs = takes_inputs;
    e->tree = tree == Py_None ? NULL : (Tree *)Py_NewRef(tree);
    e->code = (PyCodeObject *)Py_NewRef(code);
    if (e->tree != NULL && tree_attach(e->tree, e, entry_lost) < 0) return Py_DECREF((PyObject *)e), NULL;
    return (PyObject *)e;
}

static int entry_traverse(Entry *e, visitproc visit, void *arg) {
    Py_VISIT((PyObject *)e->tree);
    Py_VISIT((PyObject *)e->code);
    Py_VISIT((PyObject *)e->flat);
    /* Code objects do not show their constants to the garbage collector. Compiled graphs are constants of the
     * code, and may refer back to the owner. Therefore the entry shows the constants if only this entry holds
     * the code. */
    if (Py_REFCNT(e->code) == 1) Py_VISIT(e->code->co_consts);
    return 0;
}

static int entry_clear(Entry *e) {
    Py_CLEAR(e->flat);
    return 0; /* The tree and the code stay until deallocation, because an installed entry must be complete. */
}

static void entry_dealloc(Entry *e) {
    PyObject_GC_UnTrack(e);
    if (e->tree != NULL) tree_detach(e->tree, e);
    Py_XDECREF(e->owner);
    Py_XDECREF((PyObject *)e->tree);
    Py_XDECREF((PyObject *)e->code);
    Py_XDECREF((PyObject *)e->flat);
    Py_XDECREF(e->region);
    Py_TYPE(e)->tp_free(e);
}

static PyObject *entry_owner(Entry *e, void *unused) {
    return Py_NewRef(weak_target(e->owner));
}

static PyObject *entry_tree(Entry *e, void *unused) {
    return Py_NewRef(e->tree ? (PyObject *)e->tree : Py_None);
}

static PyObject *entry_installed(Entry *e, void *unused) {
    return PyBool_FromLong(e->group != NULL);
}

static PyGetSetDef entry_getset[] = {
    {"owner", (getter)entry_owner, NULL, "the owner, None when it is gone", NULL},
    {"tree", (getter)entry_tree, NULL, "the guards, or None", NULL},
    {"installed", (getter)entry_installed, NULL, "whether a code object can run it", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyMemberDef entry_members[] = {
    {"code", T_OBJECT, offsetof(Entry, code), READONLY, "the replacement code"},
    {"hits", T_PYSSIZET, offsetof(Entry, hits), 0, "how often it ran"},
    {"region", T_OBJECT, offsetof(Entry, region), 0, "the name of its runs in profiles, or None"},
    {NULL, 0, 0, 0, NULL},
};
PyTypeObject Entry_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fxstack_capture._native.Entry",
    .tp_doc = "Entry(owner, tree, code, takes_inputs=False): replacement code for the calls in which all guards of the tree hold.",
    .tp_basicsize = sizeof(Entry),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = entry_new,
    .tp_dealloc = (destructor)entry_dealloc,
    .tp_traverse = (traverseproc)entry_traverse,
    .tp_clear = (inquiry)entry_clear,
    .tp_getset = entry_getset,
    .tp_members = entry_members,
};

/* --- Owner --------------------------------------------------------------------------------------- */

static int owner_traverse(Owner *o, visitproc visit, void *arg) {
    for (Group *g = o->groups; g != NULL; g = g->next)
        for (int i = 0; i < g->count; i++) Py_VISIT((PyObject *)g->entries[i]);
    return 0;
}

static int owner_clear(Owner *o) {
    while (o->groups != NULL) group_drop(o->groups);
    return 0;
}

static void owner_dealloc(Owner *o) {
    PyObject_GC_UnTrack(o);
    if (o->weakrefs) PyObject_ClearWeakRefs((PyObject *)o);
    owner_clear(o);
    Py_TYPE(o)->tp_free(o);
}

static PyObject *owner_clear_method(PyObject *self, PyObject *unused) {
    owner_clear((Owner *)self);
    Py_RETURN_NONE;
}

static PyMethodDef owner_methods[] = {
    {"clear", owner_clear_method, METH_NOARGS, "clear(): remove all entries and skips of this owner."},
    {NULL, NULL, 0, NULL},
};
PyTypeObject Owner_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fxstack_capture._native.Owner",
    .tp_doc = "The owner of entries. The deletion of an owner removes its entries. The frame compiler is a subclass.",
    .tp_basicsize = sizeof(Owner),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)owner_dealloc,
    .tp_traverse = (traverseproc)owner_traverse,
    .tp_clear = (inquiry)owner_clear,
    .tp_methods = owner_methods,
    .tp_weaklistoffset = offsetof(Owner, weakrefs),
};

/* --- functions of the module --------------------------------------------------------------------- */

static int parse_code_owner(PyObject *args, const char *format, PyCodeObject **code, PyObject **owner) {
    *owner = Py_None;
    if (!PyArg_ParseTuple(args, format, &PyCode_Type, code, owner)) return -1;
    if (*owner == Py_None) *owner = NULL;
    else if (!PyObject_TypeCheck(*owner, &Owner_Type))
        return PyErr_SetString(PyExc_TypeError, "owner must be an Owner or None"), -1;
    return 0;
}

static PyObject *py_install(PyObject *module, PyObject *args) {
    PyCodeObject *code;
    Entry *entry;
    if (!PyArg_ParseTuple(args, "O!O!:install", &PyCode_Type, &code, &Entry_Type, &entry)) return NULL;
    if (entry_install(code, entry) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_remove(PyObject *module, PyObject *args) {
    PyCodeObject *code;
    Entry *entry;
    if (!PyArg_ParseTuple(args, "O!O!:remove", &PyCode_Type, &code, &Entry_Type, &entry)) return NULL;
    if (entry->group != NULL && entry->group->state->code == code) entry_uninstall(entry);
    Py_RETURN_NONE;
}

static PyObject *py_entries(PyObject *module, PyObject *args) {
    PyCodeObject *code;
    PyObject *owner;
    if (parse_code_owner(args, "O!|O:entries", &code, &owner) < 0) return NULL;
    PyObject *list = PyList_New(0);
    CodeState *state = code_state(code);
    for (Group *g = list && state ? state->groups : NULL; g != NULL; g = g->sibling) {
        if (owner != NULL && (PyObject *)g->owner != owner) continue;
        for (int i = 0; i < g->count; i++)
            if (PyList_Append(list, (PyObject *)g->entries[i]) < 0) return Py_DECREF(list), NULL;
    }
    return list;
}

static PyObject *py_skip(PyObject *module, PyObject *args) {
    PyCodeObject *code;
    PyObject *owner;
    if (parse_code_owner(args, "O!|O:skip", &code, &owner) < 0 || code_skip(code, owner) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *py_is_skipped(PyObject *module, PyObject *args) {
    PyCodeObject *code;
    PyObject *owner;
    if (parse_code_owner(args, "O!|O:is_skipped", &code, &owner) < 0) return NULL;
    CodeState *state = code_state(code);
    Group *g = state && owner ? find_group(state, owner) : NULL;
    return PyBool_FromLong(state && (state->skip_all || (g && g->skip)));
}

static PyObject *py_usage(PyObject *module, PyObject *args) {
    PyCodeObject *code;
    PyObject *owner;
    if (parse_code_owner(args, "O!O:usage", &code, &owner) < 0) return NULL;
    CodeState *state = code_state(code);
    Group *g = state && owner ? find_group(state, owner) : NULL;
    return Py_BuildValue("nn", g ? g->uses : 0, g ? g->lost : 0);
}

static PyObject *py_reset(PyObject *module, PyObject *args) {
    PyCodeObject *code;
    PyObject *owner;
    if (parse_code_owner(args, "O!|O:reset", &code, &owner) < 0) return NULL;
    CodeState *state = code_state(code);
    if (state == NULL) Py_RETURN_NONE;
    if (owner == NULL) {
        state->skip_all = 0;
        while (state->groups != NULL) group_drop(state->groups);
    } else {
        Group *g = find_group(state, owner);
        if (g != NULL) group_drop(g);
    }
    Py_RETURN_NONE;
}

static PyObject *py_never_intercept(PyObject *module, PyObject *code) {
    if (!PyCode_Check(code)) return PyErr_SetString(PyExc_TypeError, "never_intercept takes a code object"), NULL;
    CodeState *state = code_state_make((PyCodeObject *)code);
    if (state == NULL) return NULL;
    state->never_intercept = 1;
    Py_RETURN_NONE;
}

PyMethodDef entries_methods[] = {
    {"install", py_install, METH_VARARGS, "install(code, entry): add the entry to the entries of the code object"},
    {"remove", py_remove, METH_VARARGS, "remove(code, entry): remove the entry from the code object, if the code object has it"},
    {"entries", py_entries, METH_VARARGS, "entries(code, owner=None) -> list of the entries of one owner, or of all owners"},
    {"skip", py_skip, METH_VARARGS, "skip(code, owner=None): never compile the code object for one owner, or for any owner"},
    {"is_skipped", py_is_skipped, METH_VARARGS, "is_skipped(code, owner=None) -> whether skip() applies to the code object"},
    {"usage", py_usage, METH_VARARGS,
     "usage(code, owner) -> how often calls found an entry, and how many entries were removed because an object was freed"},
    {"reset", py_reset, METH_VARARGS, "reset(code, owner=None): remove the entries and skips of one owner, or of all owners"},
    {"never_intercept", py_never_intercept, METH_O, "never_intercept(code): run the frames of the code object without the frame hook"},
    {NULL, NULL, 0, NULL},
};

/* Tests on a temporary code object whether co_extra can be read without a function call. */
static void probe_extra_layout(void) {
    PyCodeObject *code = PyCode_NewEmpty("probe", "probe", 1);
    if (code == NULL) return PyErr_Clear();
    CodeState *state = code_state_make(code);
    CoExtra *extra = (CoExtra *)code->co_extra;
    extra_is_direct = state && extra && extra->size > extra_index && extra->extras[extra_index] == state;
    Py_DECREF(code);
}

int entries_init(void) {
    extra_index = request_code_extra_index(code_state_free);
    if (extra_index < 0) {
        PyErr_SetString(PyExc_ImportError, "CPython has no room for extra data on code objects");
        return -1;
    }
    probe_extra_layout();
    return 0;
}
