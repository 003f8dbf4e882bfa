/* The guard tree: what its parts look like to the files that build and check it. */
#ifndef FXSTACK_TREE_H
#define FXSTACK_TREE_H
#include "native.h"
#include "tensor_api.h"

/* A value met during a check: an object, or (object == NULL) an integer that is not boxed. */
typedef struct {
    PyObject *object;
    int64_t number;
    int owned; /* the reference is ours */
} Value;

typedef struct Node Node;
typedef struct Test Test;

/* One access. 1: found; 0: not there, or not the kind of object that has it. Leaves no exception, runs no Python code. */
typedef int (*StepFunction)(Node *node, const Value *from, Value *to);
/* One check of one value. 1: holds. The same promises. */
typedef int (*TestFunction)(Test *test, const Value *value);
/* One check of several values. */
typedef int (*RelationFunction)(Test *test, const Value *registers);

typedef enum { ROOT_STEP, ROOT_LOCAL, ROOT_FREE, ROOT_FREE_CELL, ROOT_GLOBALS, ROOT_PINNED, ROOT_PINNED_WEAKLY, ROOT_NOTHING, ROOT_ITEM_AT } Root;

/* Which dictionary decides about a node's children and tests: the value itself, or that of its attributes. */
typedef enum { DICT_NONE, DICT_OWN, DICT_OF_INSTANCE } Dictionary;

struct Test {
    TestFunction run;
    TestFunction first, again; /* the same, noting what `again` needs to check what is left while the dictionary is as it was; or NULL */
    Dictionary settled_by;     /* holds, or its `again` does, as long as this dictionary is as it was */
    int of_constant;           /* holds of an object for ever */
    int of_class;              /* holds of a class as long as it has its version tag */
    int of_registrations;      /* holds of a class as long as no class is registered with an abstract one */
    RelationFunction relation;
    int guard;                 /* index of the guard that it stands for */
    int weak;                  /* object is a weak reference */
    PyObject *object, *other;  /* borrowed: Tree.objects holds them */
    int64_t number, number2;
    TensorDemand *tensor;      /* owned */
    TorchNumbers *numbers;     /* owned */
    void *program;             /* owned: ShapeProgram or register list */
    void *memory;              /* owned: what a relation found last time */
};

struct Node {
    Root root;
    StepFunction step;
    int guard;          /* the first guard below: named when the access itself fails */
    int register_index; /* where relations read the value, or -1 */
    int test_count, child_count;
    Test *tests;
    Node *children;
    PyObject *object; /* key, name, descriptor, pinned object; borrowed from Tree.objects */
    Py_hash_t hash;
    Py_ssize_t index; /* position asked for */
    Py_ssize_t hint;  /* where a key was found last time */
    /* version_skips.c: what need not be asked again while a dictionary is as it was */
    Dictionary settles, follows; /* decides about its children; has decided what its value is */
    int stable;         /* a root that root_versions.c answers for */
    int open_tests, open_children; /* how many, the first ones, must be looked at nevertheless */
    uint64_t version;            /* of the dictionary, when everything held */
    PyObject *known;             /* the value then; borrowed, alive as long as the dictionary of the parent is as it was */
};

/* root_versions.c: a word of memory, and what it was when its root's checks held */
typedef struct {
    const void *at;
    uint64_t value;
    int narrow; /* 32 bits */
    int root;
} Word;
enum { STABLE_WORDS = 3 }; /* of one root, at most */

struct Tree {
    PyObject_HEAD
    Node *roots;
    Word *words; /* those of a root lie together */
    int word_count;
    int failed_last; /* index of a root */
    int root_count, register_count, relation_count, guard_count, output_count;
    int *outputs; /* the registers whose values the entry takes as its graph's inputs */
    Test *relations;
    PyObject *objects; /* list: strong references (and weak-reference objects) of all parts */
    PyObject *link;    /* callback of the weak references */
    PyObject *meta;    /* whatever Python attaches: the guards in order */
    PyObject *weakrefs;
    Entry *entry;      /* borrowed */
    int dead;          /* something that it refers to weakly is gone */
    int busy;          /* a check is under way: another one (of another thread, or called from within) remembers nothing */
};

/* building (tree.c): keep a reference for as long as the tree lives; NULL with an exception */
HIDDEN PyObject *tree_hold(Tree *tree, PyObject *object);
HIDDEN PyObject *tree_hold_weakly(Tree *tree, PyObject *object, int *weak);
static inline int holds_object(PyObject *held, int weak, PyObject *object) {
    return weak ? weak_target(held) == object && object != Py_None : held == object;
}

/* upcoming.c: a new reference or NULL */
HIDDEN PyObject *upcoming_item(PyObject *iterator, Py_ssize_t k);

/* steps.c */
HIDDEN int step_item_at(const Value *of, const Value *at, Value *to);
HIDDEN int step_build(Tree *tree, Node *node, const char *kind, PyObject *argument); /* -1 with an exception */
HIDDEN int steps_init(void);
HIDDEN int instance_attr_find(Node *node, const Value *from, Value *to); /* as a StepFunction */
HIDDEN int is_instance_attr(const Node *node);
HIDDEN int is_key(const Node *node);
HIDDEN extern PyTypeObject *deque_type;

HIDDEN Py_ssize_t function_field(const Node *node); /* where in a function the step reads; -1: it does something else */

/* root_versions.c */
HIDDEN int stable_build(Tree *tree); /* -1 with an exception */
HIDDEN int stable_differs(const Tree *tree, int from);
HIDDEN int stable_read(const Tree *tree, int first, uint64_t *values);
HIDDEN void stable_remember(Tree *tree, int first, const uint64_t *values);

/* version_skips.c */
HIDDEN int is_constant_leaf(const Node *node); /* nothing is asked of it that could change while it is the same object */
HIDDEN void node_settle(Node *node); /* once its tests and children are built */

/* checks.c, relations.c */
HIDDEN int test_build(Tree *tree, Test *test, const char *kind, PyObject *arguments);
HIDDEN int relation_build(Tree *tree, Test *test, const char *kind, PyObject *arguments);
HIDDEN void test_release(Test *test);

/* abstract.c */
HIDDEN extern const uint64_t *registrations_word; /* counts registrations with abstract classes; NULL: cannot be read */
HIDDEN int check_subclass_is(Test *test, const Value *value);
HIDDEN int build_subclass(Tree *tree, Test *test, PyObject *arguments); /* -1 with an exception */
HIDDEN int abstract_init(void);

/* values.c: comparisons that run no Python code */
HIDDEN int is_constant(PyObject *object);
HIDDEN int same_constant(PyObject *a, PyObject *b); /* same type and equal; identity for what is not a constant */
HIDDEN int plain_length(PyObject *container, Py_ssize_t *length); /* 1: it is a container of a known kind */
HIDDEN PyObject *dict_find(PyObject *dict, PyObject *key, Py_hash_t hash, Py_ssize_t *hint); /* borrowed or NULL */
HIDDEN int set_has(PyObject *set, PyObject *key, Py_hash_t hash);
/* the index-th key (and value, if asked for) of a dict or set; owned references; 1: found */
HIDDEN int entry_at(PyObject *container, Py_ssize_t index, PyObject **key, PyObject **value);

/* tensor_fallback.c */
HIDDEN extern const TensorApi *tensors;
HIDDEN extern PyTypeObject *tensor_base;
HIDDEN int tensor_fallback_init(void);

static inline int is_tensor(PyObject *object) {
    return object != NULL && tensor_base != NULL && PyObject_TypeCheck(object, tensor_base);
}
#endif
