/* The guard tree. guards/tree.py writes its description, from which the tree is built once. It is checked before
 * every run of an entry.
 *
 * A node is a value, and the access that reads the value from the parent node. A node has tests and children.
 * Relations between values are checked last; they read registers that nodes have filled. */
#include "guard_tree.h"
#include <string.h>
#include <structmember.h>

/* --- weak references ----------------------------------------------------------------------------- */

/* The callback of weak references. It runs when an object to which the tree refers weakly is freed. It is an
 * object of its own, because it may outlive the tree. */
typedef struct {
    PyObject_HEAD
    Tree *tree; /* Borrowed; NULL after the tree was freed. */
} Link;

static PyObject *link_call(Link *link, PyObject *args, PyObject *kwargs) {
    Tree *tree = link->tree;
    if (tree == NULL || tree->dead) Py_RETURN_NONE;
    Py_INCREF(tree);
    tree->dead = 1;
    if (tree->entry != NULL) tree->lost(tree->entry);
    Py_DECREF(tree);
    Py_RETURN_NONE;
}

static PyTypeObject Link_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fxstack_capture._native.Link",
    .tp_basicsize = sizeof(Link),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_call = (ternaryfunc)link_call,
};

int tree_attach(Tree *tree, void *entry, void (*lost)(void *entry)) {
    if (tree->entry != NULL) return PyErr_SetString(PyExc_ValueError, "this tree already has an entry"), -1;
    tree->entry = entry;
    tree->lost = lost;
    return 0;
}

void tree_detach(Tree *tree, void *entry) {
    if (tree->entry == entry) tree->entry = NULL;
}

/* --- checking ------------------------------------------------------------------------------------ */

typedef struct {
    PyFunctionObject *func;
    const Slot *locals;
    Value *registers; /* NULL: there are no relations. */
    int failed;       /* The guard that failed. */
    int remember;     /* Whether this check may use and change the state of nodes. */
} Run;

static int reach(Node *node, const Run *run, const Value *from, Value *to) {
    PyObject *cell;
    switch (node->root) {
    case ROOT_STEP: return node->step(node, from, to);
    case ROOT_LOCAL: *to = (Value){slot_object(run->locals[node->index]), 0, 0}; break;
    case ROOT_FREE:
    case ROOT_FREE_CELL:
        if (run->func->func_closure == NULL || node->index >= PyTuple_GET_SIZE(run->func->func_closure)) return 0;
        cell = PyTuple_GET_ITEM(run->func->func_closure, node->index);
        *to = (Value){node->root == ROOT_FREE ? PyCell_GET(cell) : cell, 0, 0};
        break;
    case ROOT_GLOBALS: *to = (Value){run->func->func_globals, 0, 0}; break;
    case ROOT_PINNED: *to = (Value){node->object, 0, 0}; break;
    case ROOT_PINNED_WEAKLY: *to = (Value){weak_target(node->object), 0, 0}; break;
    case ROOT_NOTHING: *to = (Value){Py_None, 0, 0}; break;
    case ROOT_ITEM_AT: return step_item_at(&run->registers[node->index], &run->registers[node->hash], to);
    }
    return to->object != NULL;
}

/* The version number of the dictionary on which a node depends. 0: there is none. */
static inline uint64_t version_of(const Node *node, PyObject *object) {
    PyObject *dict = NULL;
    if (object == NULL || node->skip_dict == DICT_NONE) return 0;
    if (node->skip_dict == DICT_OWN) return dict_version(object);
    return instance_values(object, &dict) != NULL ? 0 : dict_version(dict);
}

/* If `unchanged` is 1, runs only the open tests. Otherwise runs all tests. */
static int check_tests(Node *node, Run *run, const Value *value, int unchanged) {
    int count = unchanged ? node->open_tests : node->test_count;
    for (int i = 0; i < count; i++) {
        Test *t = &node->tests[i];
        TestFunction function = t->again == NULL || !run->remember ? t->run : unchanged ? t->again : t->first;
        if (unlikely(!function(t, value))) return run->failed = t->guard, 0;
    }
    return 1;
}

/* `unchanged`: the dictionary on which the parent node depends is unchanged (version_skips.c). */
static int check_node(Node *node, Run *run, const Value *from, int unchanged) {
    Value value = {NULL, 0, 0};
    if (unchanged && node->follows != DICT_NONE) value.object = node->known;
    else if (unlikely(!reach(node, run, from, &value))) return run->failed = node->guard, 0;
    uint64_t version = run->remember ? version_of(node, value.object) : 0;
    int same = version != 0 && version == node->version;
    if (run->remember && !same) node->version = 0, node->known = value.object;
    int ok = check_tests(node, run, &value, same);
    int count = same ? node->open_children : node->child_count;
    for (int i = 0; i < count && ok; i++) ok = check_node(&node->children[i], run, &value, same);
    if (ok && run->remember) node->version = version, node->known = value.object;
    if (node->register_index >= 0 && ok) {
        /* The register needs its own reference. The parent object may be owned only by this check, and it is
         * released before relations are checked. */
        if (!value.owned && value.object != NULL) Py_INCREF(value.object), value.owned = 1;
        run->registers[node->register_index] = value;
        return 1;
    }
    if (value.owned) Py_DECREF(value.object);
    return ok;
}

/* Checks the roots whose words have changed (root_versions.c). */
static int check_root_words(Tree *tree, Run *run) {
    uint64_t values[MAX_ROOT_WORDS];
    for (int i = root_words_differ(tree, 0); unlikely(i < tree->word_count); i = root_words_differ(tree, i + 1)) {
        int first = root_words_read(tree, i, values);
        if (!check_node(&tree->roots[tree->words[i].root], run, NULL, 0)) return 0;
        root_words_remember(tree, first, values);
    }
    return 1;
}

static int check_all(Tree *tree, Run *run) {
    int first = tree->failed_last; /* The root that failed last is likely to fail again. */
    if (first < tree->root_count && !tree->roots[first].has_words && !check_node(&tree->roots[first], run, NULL, 0)) return 0;
    if (!check_root_words(tree, run)) return 0;
    for (int i = 0; i < tree->root_count; i++)
        if (i != first && !tree->roots[i].has_words && !check_node(&tree->roots[i], run, NULL, 0)) {
            /* The registers for ROOT_ITEM_AT roots come from earlier roots, so such a root cannot be checked
             * first. */
            if (tree->roots[i].root != ROOT_ITEM_AT) tree->failed_last = i;
            return 0;
        }
    for (int i = 0; i < tree->relation_count; i++) {
        Test *t = &tree->relations[i];
        if (!t->relation(t, run->registers)) return run->failed = t->guard, 0;
    }
    return 1;
}

/* Collects the inputs of the entry's graph. The check has already read them. */
static PyObject *collect(Tree *tree, const Value *registers) {
    PyObject *tuple = PyTuple_New(tree->output_count);
    for (int i = 0; tuple != NULL && i < tree->output_count; i++) {
        const Value *v = &registers[tree->outputs[i]];
        PyObject *item = v->object ? Py_NewRef(v->object) : PyLong_FromLongLong(v->number);
        if (item == NULL) Py_CLEAR(tuple);
        else PyTuple_SET_ITEM(tuple, i, item);
    }
    if (tuple == NULL) PyErr_Clear(); /* Out of memory. The result is the same as for a failed guard. */
    return tuple;
}

/* Returns -1 if all guards hold. Otherwise returns the index of a failed guard, or guard_count if the tree is
 * dead or memory ran out. */
static int run_tree(Tree *tree, PyFunctionObject *func, const Slot *locals, PyObject **inputs) {
    if (unlikely(tree->dead)) return tree->guard_count;
    Value small[32], *registers = small;
    size_t size = tree->register_count * sizeof(Value);
    if (tree->register_count > 32 && (registers = PyMem_Malloc(size)) == NULL) return tree->guard_count;
    memset(registers, 0, size);
    Run run = {func, locals, registers, -1, !tree->busy};
    if (run.remember) tree->busy = 1;
    int ok = check_all(tree, &run);
    if (ok && inputs != NULL && (*inputs = collect(tree, registers)) == NULL) ok = 0, run.failed = tree->guard_count;
    if (run.remember) tree->busy = 0;
    for (int i = 0; i < tree->register_count; i++)
        if (registers[i].owned) Py_DECREF(registers[i].object);
    if (registers != small) PyMem_Free(registers);
    return ok ? -1 : run.failed;
}

int tree_check(Tree *tree, PyFunctionObject *func, const Slot *locals, PyObject **inputs) {
    return run_tree(tree, func, locals, inputs) < 0;
}

/* --- building ------------------------------------------------------------------------------------ */

/* test: (kind, guard, arguments) */
static int build_test(Tree *tree, Test *test, PyObject *spec, int relation) {
    const char *kind;
    PyObject *arguments;
    if (!PyArg_ParseTuple(spec, "siO!", &kind, &test->guard, &PyTuple_Type, &arguments)) return -1;
    return (relation ? relation_build : test_build)(tree, test, kind, arguments);
}

static Test *build_tests(Tree *tree, PyObject *specs, int *count, int relation) {
    Py_ssize_t n = PyTuple_GET_SIZE(specs);
    Test *tests = PyMem_Calloc(n + 1, sizeof *tests);
    if (tests == NULL) return (Test *)PyErr_NoMemory();
    for (*count = 0; *count < n; ++*count)
        if (build_test(tree, &tests[*count], PyTuple_GET_ITEM(specs, *count), relation) < 0) {
            ++*count; /* Count the failed test as well, so that its allocations are released. */
            break;
        }
    return tests;
}

static const struct { const char *kind; Root root; } root_kinds[] = {
    {"Local", ROOT_LOCAL}, {"Free", ROOT_FREE}, {"FreeCell", ROOT_FREE_CELL},
    {"Globals", ROOT_GLOBALS}, {"Pinned", ROOT_PINNED}, {"Nothing", ROOT_NOTHING},
    {"ItemAt", ROOT_ITEM_AT},
};

/* Classes are held weakly, because entries for methods of a freed class are useless. */
static int pin(Tree *tree, Node *node, PyObject *object) {
    int weak = 0;
    node->object = PyType_Check(object) ? tree_hold_weakly(tree, object, &weak) : tree_hold(tree, object);
    if (weak) node->root = ROOT_PINNED_WEAKLY;
    return node->object ? 0 : -1;
}

/* Argument: (register of the container, register of the index). */
static int take_registers(Tree *tree, Node *node, PyObject *argument) {
    if (!PyArg_ParseTuple(argument, "nn", &node->index, &node->hash)) return -1;
    int known = node->index >= 0 && node->index < tree->register_count && node->hash >= 0 && node->hash < tree->register_count;
    return known ? 0 : (PyErr_SetString(PyExc_ValueError, "no such register"), -1);
}

static int build_access(Tree *tree, Node *node, const char *kind, PyObject *argument) {
    for (size_t i = 0; i < sizeof root_kinds / sizeof *root_kinds; i++) {
        if (strcmp(kind, root_kinds[i].kind) != 0) continue;
        node->root = root_kinds[i].root;
        if (node->root == ROOT_PINNED) return pin(tree, node, argument);
        if (node->root == ROOT_ITEM_AT) return take_registers(tree, node, argument);
        if (node->root > ROOT_FREE_CELL) return 0;
        node->index = PyLong_AsSsize_t(argument);
        return PyErr_Occurred() ? -1 : 0;
    }
    node->root = ROOT_STEP;
    return step_build(tree, node, kind, argument);
}

static Node *build_nodes(Tree *tree, PyObject *specs, int *count);

/* node: (kind, argument, guard, register or -1, tests, children) */
static int build_node(Tree *tree, Node *node, PyObject *spec) {
    const char *kind;
    PyObject *argument, *tests, *children;
    if (!PyArg_ParseTuple(spec, "sOiiO!O!", &kind, &argument, &node->guard, &node->register_index, &PyTuple_Type, &tests,
                          &PyTuple_Type, &children))
        return -1;
    if (node->register_index >= tree->register_count) return PyErr_SetString(PyExc_ValueError, "no such register"), -1;
    if (build_access(tree, node, kind, argument) < 0) return -1;
    node->tests = build_tests(tree, tests, &node->test_count, 0);
    if (PyErr_Occurred()) return -1;
    node->children = build_nodes(tree, children, &node->child_count);
    if (PyErr_Occurred()) return -1;
    node_plan_skips(node);
    return 0;
}

static Node *build_nodes(Tree *tree, PyObject *specs, int *count) {
    Py_ssize_t n = PyTuple_GET_SIZE(specs);
    Node *nodes = PyMem_Calloc(n + 1, sizeof *nodes);
    if (nodes == NULL) return (Node *)PyErr_NoMemory();
    for (*count = 0; *count < n; ++*count)
        if (build_node(tree, &nodes[*count], PyTuple_GET_ITEM(specs, *count)) < 0) {
            ++*count;
            break;
        }
    return nodes;
}

static void free_tests(Test *tests, int count) {
    for (int i = 0; i < count; i++) test_release(&tests[i]);
    PyMem_Free(tests);
}

static void free_nodes(Node *nodes, int count) {
    for (int i = 0; i < count; i++) {
        free_tests(nodes[i].tests, nodes[i].test_count);
        free_nodes(nodes[i].children, nodes[i].child_count);
    }
    PyMem_Free(nodes);
}

/* --- Tree ---------------------------------------------------------------------------------------- */

static int tree_start(Tree *tree) {
    Link *link = PyObject_New(Link, &Link_Type);
    if (link == NULL) return -1;
    link->tree = tree;
    tree->link = (PyObject *)link;
    tree->objects = PyList_New(0);
    return tree->objects ? 0 : -1;
}

static void build_outputs(Tree *tree, PyObject *numbers) {
    Py_ssize_t n = PyTuple_GET_SIZE(numbers);
    tree->outputs = PyMem_Calloc(n + 1, sizeof *tree->outputs);
    if (tree->outputs == NULL) return (void)PyErr_NoMemory();
    for (; tree->output_count < n; tree->output_count++) {
        long r = PyLong_AsLong(PyTuple_GET_ITEM(numbers, tree->output_count));
        if ((r < 0 || r >= tree->register_count) && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "no such register");
        if (PyErr_Occurred()) return;
        tree->outputs[tree->output_count] = (int)r;
    }
}

static PyObject *tree_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"roots", "relations", "registers", "guards", "meta", "outputs", NULL};
    PyObject *roots, *relations, *meta = Py_None, *outputs = NULL;
    int registers, guards;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O!ii|OO!:Tree", names, &PyTuple_Type, &roots, &PyTuple_Type, &relations,
                                     &registers, &guards, &meta, &PyTuple_Type, &outputs))
        return NULL;
    Tree *tree = (Tree *)type->tp_alloc(type, 0);
    if (tree == NULL) return NULL;
    tree->register_count = registers;
    tree->guard_count = guards;
    tree->meta = Py_NewRef(meta);
    if (tree_start(tree) < 0) return Py_DECREF((PyObject *)tree), NULL;
    if (outputs != NULL) build_outputs(tree, outputs);
    if (!PyErr_Occurred()) tree->roots = build_nodes(tree, roots, &tree->root_count);
    if (!PyErr_Occurred()) root_words_build(tree);
    if (!PyErr_Occurred()) tree->relations = build_tests(tree, relations, &tree->relation_count, 1);
    if (PyErr_Occurred()) return Py_DECREF((PyObject *)tree), NULL;
    return (PyObject *)tree;
}

static int tree_traverse(Tree *tree, visitproc visit, void *arg) {
    Py_VISIT(tree->objects);
    Py_VISIT(tree->meta);
    return 0;
}

static int tree_clear(Tree *tree) {
    tree->dead = 1; /* Nodes borrow references from `objects`. */
    Py_CLEAR(tree->objects);
    Py_CLEAR(tree->meta);
    return 0;
}

static void tree_dealloc(Tree *tree) {
    PyObject_GC_UnTrack(tree);
    if (tree->weakrefs) PyObject_ClearWeakRefs((PyObject *)tree);
    if (tree->link) ((Link *)tree->link)->tree = NULL;
    free_nodes(tree->roots, tree->root_count);
    free_tests(tree->relations, tree->relation_count);
    PyMem_Free(tree->words);
    PyMem_Free(tree->outputs);
    tree_clear(tree);
    Py_XDECREF(tree->link);
    Py_TYPE(tree)->tp_free(tree);
}

static PyObject *tree_failing(Tree *tree, PyObject *args) {
    PyFunctionObject *func;
    PyObject *locals;
    if (!PyArg_ParseTuple(args, "O!O!:failing", &PyFunction_Type, &func, &PyTuple_Type, &locals)) return NULL;
    PyCodeObject *code = (PyCodeObject *)func->func_code;
    if (PyTuple_GET_SIZE(locals) != code_argument_slots(code))
        return PyErr_Format(PyExc_ValueError, "%U has %d arguments", code->co_qualname, code_argument_slots(code)), NULL;
    return PyLong_FromLong(run_tree(tree, func, (const Slot *)((PyTupleObject *)locals)->ob_item, NULL));
}

static PyMethodDef tree_own_methods[] = {
    {"failing", (PyCFunction)tree_failing, METH_VARARGS,
     "failing(func, arguments) -> -1 if all guards hold, else the index of a failing guard; the number of guards if the tree is dead"},
    {NULL, NULL, 0, NULL},
};
static PyMemberDef tree_members[] = {
    {"meta", T_OBJECT, offsetof(Tree, meta), 0, "an object that the creator of the tree attached"},
    {"inputs", T_INT, offsetof(Tree, output_count), READONLY, "the number of values that the tree passes to its entry"},
    {"dead", T_INT, offsetof(Tree, dead), READONLY, "1 if an object with a weak reference in the tree no longer exists"},
    {NULL, 0, 0, 0, NULL},
};
PyTypeObject Tree_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fxstack_capture._native.Tree",
    .tp_doc = "Tree(roots, relations, registers, guards, meta=None, outputs=()): compiled guards; see guards/tree.py.",
    .tp_basicsize = sizeof(Tree),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = tree_new,
    .tp_dealloc = (destructor)tree_dealloc,
    .tp_traverse = (traverseproc)tree_traverse,
    .tp_clear = (inquiry)tree_clear,
    .tp_methods = tree_own_methods,
    .tp_members = tree_members,
    .tp_weaklistoffset = offsetof(Tree, weakrefs),
};

/* time_check(tree, func, arguments, n): processor time of one check in nanoseconds, for benchmarks. */
static PyObject *py_time_check(PyObject *module, PyObject *args) {
    Tree *tree;
    PyFunctionObject *func;
    PyObject *locals;
    long n, ok = 0;
    if (!PyArg_ParseTuple(args, "O!O!O!l", &Tree_Type, &tree, &PyFunction_Type, &func, &PyTuple_Type, &locals, &n)) return NULL;
    struct timespec a, b;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
    for (long i = 0; i < n; i++) {
        PyObject *inputs = NULL;
        ok += tree_check(tree, func, (const Slot *)((PyTupleObject *)locals)->ob_item, &inputs);
        Py_XDECREF(inputs);
    }
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
    if (ok != n) return PyErr_SetString(PyExc_ValueError, "the guards do not hold"), NULL;
    return PyFloat_FromDouble(((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / n);
}

PyMethodDef tree_methods[] = {
    {"time_check", py_time_check, METH_VARARGS, "time_check(tree, func, arguments, n) -> nanoseconds per check, measured over n checks"},
    {NULL, NULL, 0, NULL},
};

int tree_init(void) {
    return PyType_Ready(&Link_Type) < 0 || values_init() < 0 || abc_subclass_init() < 0 || tensor_fallback_init() < 0 ? -1 : 0;
}
