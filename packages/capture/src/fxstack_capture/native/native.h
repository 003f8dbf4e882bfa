/* Declarations that the files of the extension share. */
#ifndef FXSTACK_NATIVE_H
#define FXSTACK_NATIVE_H
#include "frame_compat.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define COLD __attribute__((noinline, cold))
#define HIDDEN __attribute__((visibility("hidden")))

/* --- modes of a thread (hook.c) ----------------------------------------------------------------- */

typedef enum { MODE_OFF, MODE_COMPILE, MODE_INTERCEPT } Mode;

typedef struct {
    Mode mode;
    PyObject *callback;    /* borrowed: held by the call that set the mode */
    PyObject *owner;       /* compile mode: an Owner, borrowed */
    PyObject *passthrough; /* intercept mode: a Passthrough or NULL, borrowed */
} Scope;

HIDDEN Scope *current_scope(void);
HIDDEN int hook_retain(void);  /* The first call installs the evaluator. -1 with an exception. */
HIDDEN void hook_release(void); /* The last call uninstalls the evaluator. */
HIDDEN PyObject *hook_stats(void);
/* No traceback shows frames of code whose co_filename is this object. */
HIDDEN void hook_hide_file(PyObject *name);
/* Sets the type of continuations, which replacement code returns. -1 with an exception. */
HIDDEN int hook_use_continuation(PyObject *type);
HIDDEN int hook_use_profiler(PyObject *namespace);
HIDDEN void hook_use_debugging(PyObject *is_debugged);

/* --- per code object (entries.c) ---------------------------------------------------------------- */

typedef struct Entry Entry;
typedef struct Owner Owner;
typedef struct Group Group;
typedef struct Tree Tree;

struct Entry {
    PyObject_HEAD
    PyObject *owner;     /* a weak reference */
    Group *group;        /* The group that the entry is installed in, or NULL. */
    Tree *tree;          /* NULL: no guards */
    PyCodeObject *code;  /* the replacement */
    PyCodeObject *flat;  /* The replacement with all parameters positional, for calls. Made when needed. */
    /* The first local variable after the arguments receives the values that the tree collects. */
    int takes_inputs;
    Py_ssize_t hits;
    uint64_t age; /* the number of entries that were installed before */
    PyObject *region; /* NULL, or the str that names a run of the entry in torch's profiler */
};

/* The entries of one owner for one code object. Owner and code object both link to the group. When either
 * one is freed, it drops the group. */
struct Group {
    Owner *owner;
    struct CodeState *state;
    Group *next, *previous; /* of the owner */
    Group *sibling;         /* of the code object */
    int skip, count, room;
    Py_ssize_t uses; /* Calls that ran an entry, without the calls for which the entries were compiled. */
    Py_ssize_t lost; /* Entries that were removed because an object was freed. */
    Entry **entries; /* strong, reported to the garbage collector by the owner; most recently hit first */
};

typedef struct CodeState {
    PyCodeObject *code; /* Borrowed: the state is freed together with the code object. */
    Group *groups;
    int skip_all, never_intercept;
    uint64_t passthrough_key; /* The key of the Passthrough that made the cached decision. */
    int passthrough;          /* The cached decision. */
    /* Counts installs and removals, so that a lookup notices a change during a check. */
    uint32_t changes;
} CodeState;

struct Owner {
    PyObject_HEAD
    Group *groups;
    PyObject *weakrefs;
};

extern HIDDEN PyTypeObject Entry_Type, Owner_Type, Tree_Type, Passthrough_Type, Optimized_Type, Disabled_Type, Watched_Type;
extern HIDDEN PyObject *answer_skip, *answer_run, *answer_not_cached; /* sentinels SKIP, RUN and NOT_CACHED */
HIDDEN PyObject *cached_result(PyObject *wrapper, PyObject *key); /* borrowed; answer_not_cached; NULL with an exception */

HIDDEN int entries_init(void);
HIDDEN int scopes_init(void); /* interns names; -1 with an exception set */
HIDDEN CodeState *code_state(PyCodeObject *code);      /* NULL if there is none. Never sets an exception. */
HIDDEN CodeState *code_state_make(PyCodeObject *code); /* NULL with an exception */
HIDDEN int entry_install(PyCodeObject *code, Entry *entry);
HIDDEN void entry_uninstall(Entry *entry);
HIDDEN int code_skip(PyCodeObject *code, PyObject *owner);
HIDDEN PyCodeObject *entry_flat_code(Entry *entry); /* borrowed */
extern HIDDEN PyMethodDef entries_methods[];

static inline Group *find_group(CodeState *state, PyObject *owner) {
    for (Group *g = state->groups; g != NULL; g = g->sibling)
        if ((PyObject *)g->owner == owner) return g;
    return NULL;
}

/* --- scopes (scopes.c): the calls that set modes -------------------------------------------------- */

HIDDEN int began_under_hooks(void); /* Whether the running Optimized call began under saved-tensor hooks. */
extern HIDDEN PyMethodDef scopes_methods[];
extern HIDDEN PyMethodDef finalizers_methods[];
extern HIDDEN PyMethodDef formulas_methods[];
extern HIDDEN PyMethodDef cached_methods[];
extern HIDDEN PyMethodDef values_methods[];
extern HIDDEN PyMethodDef upcoming_methods[];

/* --- walks over arguments (scan.c) -------------------------------------------------------------- */

extern HIDDEN PyMethodDef scan_methods[];
HIDDEN int passthrough_decides(PyObject *passthrough, PyCodeObject *code); /* 1 yes, 0 no, -1 exception */

/* --- guards (tree.c) ------------------------------------------------------------------------------ */

/* 1: accept, 0: reject. `inputs` receives the tuple of the tree's outputs. NULL: the caller does not need
 * it. */
HIDDEN int tree_check(Tree *tree, PyFunctionObject *func, const Slot *locals, PyObject **inputs);
extern HIDDEN PyMethodDef tree_methods[];
/* The entry is uninstalled when the tree dies. ValueError: the tree has an entry already. */
HIDDEN int tree_attach(Tree *tree, Entry *entry);
HIDDEN void tree_detach(Tree *tree, Entry *entry);
extern HIDDEN PyMethodDef tensor_methods[];
HIDDEN int tree_init(PyObject *module);
extern HIDDEN PyMethodDef dict_states_methods[];
HIDDEN void dict_states_init(void);

#endif
