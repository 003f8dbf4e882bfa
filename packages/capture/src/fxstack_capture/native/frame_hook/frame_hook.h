/* The frame hook: modes of threads, entries of code objects, and the calls that set modes. */
#ifndef FXSTACK_FRAME_HOOK_H
#define FXSTACK_FRAME_HOOK_H
#include "guard_tree/guard_tree.h"

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
extern HIDDEN PyMethodDef hook_methods[];

/* A function of the module that sets a static variable to its argument. */
#define SETTER(NAME, VARIABLE)                                     \
    static PyObject *NAME(PyObject *module, PyObject *value) {     \
        Py_XSETREF(VARIABLE, Py_NewRef(value));                    \
        Py_RETURN_NONE;                                            \
    }

/* --- per code object (entries.c) ---------------------------------------------------------------- */

typedef struct Entry Entry;
typedef struct Owner Owner;
typedef struct Group Group;

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

/* The entries of one owner for one code object. Both the owner and the code object link to the group. When one
 * of them is freed, it drops the group. */
struct Group {
    Owner *owner;
    struct CodeState *state;
    Group *next, *previous; /* of the owner */
    Group *sibling;         /* of the code object */
    int skip, count, room;
    Py_ssize_t uses; /* Calls that ran an entry, except those for which entries were compiled. */
    Py_ssize_t lost; /* Entries that were removed because an object was freed. */
    Entry **entries; /* strong, reported to the garbage collector by the owner; most recently hit first */
};

typedef struct CodeState {
    PyCodeObject *code; /* Borrowed: the state is freed together with the code object. */
    Group *groups;
    int skip_all, never_intercept;
    uint64_t passthrough_key; /* The key of the Passthrough that made the decision in `passthrough`. */
    int passthrough;          /* The cached decision. */
    /* Counts installs and removals, so that a lookup can notice a change during a check. */
    uint32_t changes;
} CodeState;

struct Owner {
    PyObject_HEAD
    Group *groups;
    PyObject *weakrefs;
};

extern HIDDEN PyTypeObject Entry_Type, Owner_Type, Passthrough_Type, Optimized_Type, Disabled_Type, Watched_Type;
extern HIDDEN PyObject *answer_skip, *answer_run; /* the sentinels SKIP and RUN */

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

/* --- scopes.c: the calls that set modes ------------------------------------------------------------- */

extern HIDDEN PyMethodDef scopes_methods[];

/* --- frame_arguments.c ----------------------------------------------------------------------------- */

HIDDEN PyObject *frame_locals(InterpreterFrame *f); /* the arguments by name, as the program's locals() */
/* The values [*positional, *varargs], and the dictionary of the other arguments. */
HIDDEN PyObject *positional_arguments(PyCodeObject *code, const Slot *slots);
HIDDEN PyObject *keyword_arguments(PyCodeObject *code, const Slot *slots);

/* --- passthrough.c -------------------------------------------------------------------------------- */

HIDDEN int passthrough_decides(PyObject *passthrough, PyCodeObject *code); /* 1 yes, 0 no, -1 exception */

/* --- saved_tensor_hooks.c ------------------------------------------------------------------------- */

/* The innermost saved-tensor hooks at the start of the running Optimized call. Borrowed from the call. NULL: no
 * call is running. */
extern HIDDEN __thread PyObject *first_hooks;
HIDDEN PyObject *read_saved_hooks(void); /* The innermost hooks, a tuple or None: a new reference, or NULL with an exception. */
extern HIDDEN PyMethodDef saved_hooks_methods[];

static inline int began_under_hooks(void) { return first_hooks != NULL && first_hooks != Py_None; }

#endif
