/* The guard tree: the data structures of the files that build it and check it. */
#ifndef FXSTACK_GUARD_TREE_H
#define FXSTACK_GUARD_TREE_H
#include "readers/readers.h"

/* A value in a check. It is an object, or an unboxed integer if object is NULL. */
typedef struct {
    PyObject *object;
    int64_t number;
    int owned; /* The check owns the reference. */
} Value;

typedef struct Node Node;
typedef struct Test Test;
typedef struct Tree Tree;

/* One access. Returns 1: found. Returns 0: the value is missing, or the object is of the wrong kind. Leaves no
 * exception and runs no Python code. */
typedef int (*StepFunction)(Node *node, const Value *from, Value *to);
/* One check of one value. Returns 1: it holds. Leaves no exception and runs no Python code. */
typedef int (*TestFunction)(Test *test, const Value *value);
/* One check of several values. */
typedef int (*RelationFunction)(Test *test, const Value *registers);

typedef enum { ROOT_STEP, ROOT_LOCAL, ROOT_FREE, ROOT_FREE_CELL, ROOT_GLOBALS, ROOT_PINNED, ROOT_PINNED_WEAKLY, ROOT_NOTHING, ROOT_ITEM_AT } Root;

/* The dictionary on which the children and tests of a node depend: the value itself, or its instance dictionary. */
typedef enum { DICT_NONE, DICT_OWN, DICT_OF_INSTANCE } Dictionary;

struct Test {
    TestFunction run;
    /* `first` does the same as `run`, and records data for `again`. `again` checks only the part of the test
     * whose result may change although the dictionary is unchanged. NULL if there is none. */
    TestFunction first, again;
    /* While this dictionary is unchanged, the test holds, or only `again` must be run. */
    Dictionary depends_on;
    int of_constant;           /* Once the test holds for an object, it always holds for this object. */
    int of_class;              /* The test holds for a class while its version tag is unchanged. */
    /* The test holds for a class while no class is registered with an abstract base class. */
    int of_registrations;
    RelationFunction relation;
    int guard;                 /* Index of the guard that the test implements. */
    int weak;                  /* object is a weak reference */
    PyObject *object, *other;  /* borrowed: Tree.objects holds them */
    int64_t number, number2;
    TensorDemand *tensor;      /* owned */
    TorchNumbers *numbers;     /* owned */
    void *program;             /* owned: ShapeProgram or register list */
    void *memory;              /* Owned: data of the relation from its last run. */
};

struct Node {
    Root root;
    StepFunction step;
    /* The first guard in the subtree. If the access itself fails, this guard has failed. */
    int guard;
    int register_index; /* The register from which relations read the value, or -1. */
    int test_count, child_count;
    Test *tests;
    Node *children;
    PyObject *object; /* key, name, descriptor, pinned object; borrowed from Tree.objects */
    Py_hash_t hash;
    Py_ssize_t index; /* Requested position. */
    Py_ssize_t hint;  /* The position where the last check found the key. */
    /* Used by version_skips.c: the parts that a check skips while a dictionary is unchanged. */
    /* `skip_dict` is the dictionary on which the children depend. `follows` is the dictionary that determines
     * the value of this node. */
    Dictionary skip_dict, follows;
    int has_words;         /* Whether root_versions.c compares words for this root. */
    /* Even if the dictionary is unchanged, the first open_tests tests and the first open_children children are
     * checked. */
    int open_tests, open_children;
    uint64_t version;            /* The version of the dictionary when all tests last held. */
    /* The value at that time. Borrowed: it lives as long as the dictionary of the parent is unchanged. */
    PyObject *known;
};

/* Used by root_versions.c: a word of memory, and its value when the checks of its root last held. */
typedef struct {
    const void *at;
    uint64_t value;
    int narrow; /* 32 bits */
    int root;
} Word;
enum { MAX_ROOT_WORDS = 3 }; /* Maximum number of words of one root. */

struct Tree {
    PyObject_HEAD
    Node *roots;
    Word *words; /* The words of one root are contiguous. */
    int word_count;
    int failed_last; /* index of a root */
    int root_count, register_count, relation_count, guard_count, output_count;
    int *outputs; /* The registers whose values become the inputs of the entry's graph. */
    Test *relations;
    /* A list with strong references, and weak reference objects. All parts of the tree borrow from it. */
    PyObject *objects;
    PyObject *link;    /* callback of the weak references */
    PyObject *meta;    /* An object that Python code attaches: the guards in order. */
    PyObject *weakrefs;
    void *entry;       /* borrowed: the entry that the tree guards */
    void (*lost)(void *entry); /* called when the tree dies */
    int dead;          /* Whether an object to which the tree refers weakly has been freed. */
    /* Whether a check is running. Another check at the same time (of another thread, or nested) must not use or
     * change the state of nodes. */
    int busy;
};

/* Building: keep a reference for the lifetime of the tree. NULL with an exception. */
static inline PyObject *tree_hold(Tree *tree, PyObject *object) {
    return PyList_Append(tree->objects, object) < 0 ? NULL : object;
}
/* Static types need no weak reference: they live as long as the process. */
static inline PyObject *tree_hold_weakly(Tree *tree, PyObject *object, int *weak) {
    int immortal = PyType_Check(object) && !(((PyTypeObject *)object)->tp_flags & Py_TPFLAGS_HEAPTYPE);
    *weak = Py_TYPE(object)->tp_weaklistoffset != 0 && !immortal;
    if (!*weak) return tree_hold(tree, object);
    PyObject *reference = PyWeakref_NewRef(object, tree->link);
    PyObject *held = reference ? tree_hold(tree, reference) : NULL;
    Py_XDECREF(reference);
    return held;
}
static inline int holds_object(PyObject *held, int weak, PyObject *object) {
    return weak ? weak_target(held) == object && object != Py_None : held == object;
}

/* steps.c */
HIDDEN int step_item_at(const Value *of, const Value *at, Value *to);
HIDDEN int step_build(Tree *tree, Node *node, const char *kind, PyObject *argument); /* -1 with an exception */
HIDDEN int instance_attr_find(Node *node, const Value *from, Value *to); /* as a StepFunction */
HIDDEN int is_instance_attr(const Node *node);
HIDDEN int is_key(const Node *node);

/* The offset of the field that the step reads in the function object. -1: the step does not read a field. */
HIDDEN Py_ssize_t function_field(const Node *node);

/* root_versions.c */
HIDDEN int root_words_build(Tree *tree); /* -1 with an exception */
HIDDEN int root_words_differ(const Tree *tree, int from);
HIDDEN int root_words_read(const Tree *tree, int first, uint64_t *values);
HIDDEN void root_words_remember(Tree *tree, int first, const uint64_t *values);

/* version_skips.c */
/* Whether the result of each test of the node is always the same for the same object. */
HIDDEN int is_constant_leaf(const Node *node);
HIDDEN void node_plan_skips(Node *node); /* Called after the tests and children of the node have been built. */

/* checks.c, alias_checks.c */
HIDDEN int test_build(Tree *tree, Test *test, const char *kind, PyObject *arguments);
HIDDEN int relation_build(Tree *tree, Test *test, const char *kind, PyObject *arguments);
HIDDEN void test_release(Test *test);

/* torch_checks.c */
HIDDEN int check_tensor_is(Test *test, const Value *value);
HIDDEN int build_tensor(Tree *tree, Test *test, PyObject *arguments);
HIDDEN int check_torch_state(Test *test, const Value *value);
HIDDEN int build_state(Tree *tree, Test *test, PyObject *arguments);

/* shape_program.c. Arguments: (program,), a tuple of pairs (operation: str, operand: int or float) that guards/shape.py makes. */
HIDDEN int shape_build(Tree *tree, Test *test, PyObject *arguments);

/* abc_subclass.c */
/* CPython's count of registrations with abstract base classes. NULL: it cannot be read. */
HIDDEN extern const uint64_t *registrations_word;
HIDDEN int check_subclass_is(Test *test, const Value *value);
HIDDEN int build_subclass(Tree *tree, Test *test, PyObject *arguments); /* -1 with an exception */
HIDDEN int abc_subclass_init(void);

/* tree.c */
extern HIDDEN PyTypeObject Tree_Type;
/* Returns 1: accept, 0: reject. `inputs` receives the tuple of the tree's outputs; it is NULL if the caller does
 * not need it. The caller has turned the modes of the thread off, because an attribute that is implemented in C
 * may call Python code. */
HIDDEN int tree_check(Tree *tree, PyFunctionObject *func, const Slot *locals, PyObject **inputs);
/* When the tree dies, `lost` is called with the entry. Raises ValueError if the tree already has an entry. */
HIDDEN int tree_attach(Tree *tree, void *entry, void (*lost)(void *entry));
HIDDEN void tree_detach(Tree *tree, void *entry);
HIDDEN int tree_init(void);
extern HIDDEN PyMethodDef tree_methods[], formulas_methods[];

#endif
