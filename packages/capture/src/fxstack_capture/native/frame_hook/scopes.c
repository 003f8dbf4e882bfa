/* The calls that turn a mode on or off for the duration of the call: run_with, Optimized, Disabled,
 * Watched, intercept. */
#include "frame_hook.h"
#include <string.h>
#include <structmember.h>
#include <time.h>

/* --- calling in a scope -------------------------------------------------------------------------- */

/* -1 with an exception. Without one, scope_leave() must follow. */
static inline int scope_enter(const Scope *scope, Scope *saved) {
    if (hook_retain() < 0) return -1;
    Scope *current = current_scope();
    *saved = *current;
    Py_INCREF(scope->callback);
    Py_XINCREF(scope->owner);
    Py_XINCREF(scope->passthrough);
    *current = *scope;
    return 0;
}

static inline void scope_leave(const Scope *scope, const Scope *saved) {
    *current_scope() = *saved;
    Py_DECREF(scope->callback);
    Py_XDECREF(scope->owner);
    Py_XDECREF(scope->passthrough);
    hook_release();
}

/* `args`: a tuple, or NULL for no arguments. `kwargs`: a dict, None or NULL. */
static PyObject *call_in_scope(Scope scope, PyObject *fn, PyObject *args, PyObject *kwargs) {
    if (args != NULL && !PyTuple_Check(args)) return PyErr_SetString(PyExc_TypeError, "args must be a tuple"), NULL;
    if (kwargs == Py_None) kwargs = NULL;
    if (kwargs != NULL && !PyDict_Check(kwargs)) return PyErr_SetString(PyExc_TypeError, "kwargs must be a dict"), NULL;
    PyObject *tuple = args != NULL ? Py_NewRef(args) : PyTuple_New(0);
    Scope saved;
    if (tuple == NULL || scope_enter(&scope, &saved) < 0) return Py_XDECREF(tuple), NULL;
    PyObject *result = PyObject_Call(fn, tuple, kwargs);
    scope_leave(&scope, &saved);
    Py_DECREF(tuple);
    return result;
}

static PyObject *py_run_with(PyObject *module, PyObject *const *args, Py_ssize_t n) {
    if (n < 3 || n > 5) return PyErr_SetString(PyExc_TypeError, "run_with(callback, owner, fn, args=(), kwargs=None)"), NULL;
    if (!PyObject_TypeCheck(args[1], &Owner_Type)) return PyErr_SetString(PyExc_TypeError, "owner must be an Owner"), NULL;
    Scope scope = {MODE_COMPILE, args[0], args[1], NULL};
    return call_in_scope(scope, args[2], n > 3 ? args[3] : NULL, n > 4 ? args[4] : NULL);
}

static PyObject *py_intercept(PyObject *module, PyObject *const *args, Py_ssize_t n, PyObject *names) {
    PyObject *passthrough = n > 4 ? args[4] : NULL;
    Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
    if (named == 1 && n < 5 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "passthrough") == 0)
        passthrough = args[n];
    else if (named > 0 || n > 5) n = 0;
    if (n < 2)
        return PyErr_SetString(PyExc_TypeError, "intercept(callback, fn, args=(), kwargs=None, passthrough=None)"), NULL;
    if (passthrough == Py_None) passthrough = NULL;
    if (passthrough && !Py_IS_TYPE(passthrough, &Passthrough_Type))
        return PyErr_SetString(PyExc_TypeError, "passthrough must be a Passthrough"), NULL;
    Scope scope = {MODE_INTERCEPT, args[0], NULL, passthrough};
    return call_in_scope(scope, args[1], n > 2 ? args[2] : NULL, n > 3 ? args[3] : NULL);
}

/* --- Optimized, Disabled and Watched ---------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    /* For Disabled, `callback` is the exception to raise after the call, or NULL. For Watched, `callback` is the
     * function to call after `fn`. For both, `owner` is NULL. */
    PyObject *fn, *callback, *owner;
    PyObject *dict, *weakrefs;
    /* For Optimized: the object that decides how to run a call, and gets its time. NULL: none. */
    PyObject *trial;
    /* For Optimized: the number of calls that run in plain Python before the trial is asked again. */
    Py_ssize_t plain_calls;
} Wrapper;

typedef enum { COMPILED, PLAIN, REDIRECTED } CallMode;
static __thread CallMode thread_call_mode; /* How Optimized callables run in this thread. */
static PyObject *redirect;      /* The function that is called instead of a redirected Optimized callable. */

static PyObject *set_call_mode(CallMode mode) {
    CallMode was = thread_call_mode;
    thread_call_mode = mode;
    return PyBool_FromLong(was == PLAIN);
}

static PyObject *py_bypass(PyObject *module, PyObject *on) {
    int now = PyObject_IsTrue(on);
    return now < 0 ? NULL : set_call_mode(now ? PLAIN : COMPILED);
}

SETTER(py_use_redirect, redirect)

static PyObject *py_redirect(PyObject *module, PyObject *unused) {
    if (redirect == NULL) return PyErr_SetString(PyExc_RuntimeError, "use_redirect was not called"), NULL;
    return set_call_mode(REDIRECTED);
}

static PyObject *disabled_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names);

/* The names by which torch's own compiler stores its stance. */
static PyObject *torch_module, *torch_global, *stance_word, *backend_word;
/* The globals of that module, once it is loaded. */
static PyObject *torch_globals;
static PyObject *last_stance;                               /* The stance object that was read last. */
static CallMode last_answer;
static PyObject *trial_begin, *trial_end; /* methods of trials */

int scopes_init(void) {
    torch_module = PyUnicode_InternFromString("torch._dynamo.eval_frame");
    torch_global = PyUnicode_InternFromString("_stance");
    stance_word = PyUnicode_InternFromString("stance");
    backend_word = PyUnicode_InternFromString("backend");
    trial_begin = PyUnicode_InternFromString("begin");
    trial_end = PyUnicode_InternFromString("end");
    return torch_module && torch_global && stance_word && backend_word && trial_begin && trial_end ? 0 : -1;
}

static int has_backend(PyObject *stance) {
    PyObject *backend = redirect ? PyObject_GetAttr(stance, backend_word) : NULL;
    if (backend == NULL) return PyErr_Clear(), 0;
    Py_DECREF(backend);
    return backend != Py_None;
}

static CallMode ask_stance(PyObject *stance) {
    PyObject *word = PyObject_GetAttr(stance, stance_word);
    if (word == NULL) {
        PyErr_Clear();
        return COMPILED;
    }
    int eager = PyUnicode_Check(word) && PyUnicode_CompareWithASCIIString(word, "force_eager") == 0;
    Py_DECREF(word);
    Py_XSETREF(last_stance, Py_NewRef(stance));
    return last_answer = eager ? PLAIN : has_backend(stance) ? REDIRECTED : COMPILED;
}

/* The stance that torch.compiler.set_stance has set: "force_eager", or another backend. */
static CallMode call_mode_of_stance(void) {
    if (torch_globals == NULL) {
        PyObject *module = PyDict_GetItemWithError(PyImport_GetModuleDict(), torch_module);
        if (module == NULL || !PyModule_Check(module)) return COMPILED;
        torch_globals = Py_NewRef(PyModule_GetDict(module));
    }
    PyObject *stance = PyDict_GetItemWithError(torch_globals, torch_global);
    if (stance == NULL || stance == last_stance) return stance == NULL ? COMPILED : last_answer;
    return ask_stance(stance);
}

static PyObject *redirected_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {
    Py_ssize_t n = PyVectorcall_NARGS(nargsf) + (names ? PyTuple_GET_SIZE(names) : 0);
    PyObject **with_self = PyMem_Malloc((n + 1) * sizeof *with_self);
    if (with_self == NULL) return PyErr_NoMemory();
    with_self[0] = self;
    memcpy(with_self + 1, args, n * sizeof *args);
    Scope *current = current_scope(), saved = *current;
    Py_INCREF(self);
    current->mode = MODE_OFF;
    PyObject *result = PyObject_Vectorcall(redirect, with_self, PyVectorcall_NARGS(nargsf) + 1, names);
    *current_scope() = saved;
    Py_DECREF(self);
    PyMem_Free(with_self);
    return result;
}

/* Such calls are neither timed nor run in plain Python, because a checkpoint may repeat a call. */
static int is_under_hooks(void) {
    PyObject *now = read_saved_hooks();
    if (now == NULL) PyErr_Clear();
    Py_XDECREF(now);
    return now != Py_None;
}

static PyObject *compiled_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {
    Wrapper *w = (Wrapper *)self;
    Scope scope = {MODE_COMPILE, w->callback, w->owner, NULL};
    PyObject *hooks = read_saved_hooks(), *outer = first_hooks, *result = NULL;
    if (hooks == NULL) return NULL;
    Scope saved;
    Py_INCREF(self);
    first_hooks = hooks;
    if (scope_enter(&scope, &saved) == 0) {
        result = PyObject_Vectorcall(w->fn, args, nargsf, names);
        scope_leave(&scope, &saved);
    }
    first_hooks = outer;
    Py_DECREF(hooks);
    Py_DECREF(self);
    return result;
}

/* --- trials: timed calls, compiled and plain -------------------------------------------------------- */

typedef enum { RUN_COMPILED, TIME_COMPILED, TIME_PLAIN, WATCH } TrialMode; /* WATCH: tell if the call returns. */

/* The processor time of this thread. Other work on the machine does not count. */
static long long now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static TrialMode ask_trial(PyObject *trial, PyObject *self) {
    PyObject *answer = PyObject_CallMethodOneArg(trial, trial_begin, self);
    long trial_mode = answer ? PyLong_AsLong(answer) : -1;
    Py_XDECREF(answer);
    return trial_mode == -1 && PyErr_Occurred() ? (TrialMode)-1 : (TrialMode)trial_mode;
}

/* Returns 0, or -1 with an exception. A warning raises if the program has made warnings errors. */
static int tell_trial(PyObject *trial, PyObject *self, TrialMode trial_mode, long long took, PyObject *result) {
    PyObject *plain = trial_mode == TIME_PLAIN ? Py_True : Py_False, *ns = PyLong_FromLongLong(took);
    PyObject *answer = ns ? PyObject_CallMethodObjArgs(trial, trial_end, self, plain, ns, result, NULL) : NULL;
    Py_XDECREF(ns);
    Py_XDECREF(answer);
    return answer ? 0 : -1;
}

/* This is C code, so that no frame of fxstack is the caller of the program's frame. The program may inspect its
 * caller. */
static COLD PyObject *trial_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {
    PyObject *trial = Py_NewRef(((Wrapper *)self)->trial), *result = NULL;
    Scope *current = current_scope(), saved = *current;
    Py_INCREF(self);
    current->mode = MODE_OFF;
    TrialMode trial_mode = ask_trial(trial, self);
    *current_scope() = saved;
    if (trial_mode == (TrialMode)-1) goto done;
    long long start = now_ns();
    result = (trial_mode == TIME_PLAIN ? disabled_call : compiled_call)(self, args, nargsf, names);
    if (trial_mode != RUN_COMPILED && (result != NULL || trial_mode != WATCH)) {
        long long took = now_ns() - start;
        PyObject *type, *value, *traceback; /* The error of a call that has raised. It counts like any other call. */
        PyErr_Fetch(&type, &value, &traceback);
        current->mode = MODE_OFF;
        int answer = tell_trial(trial, self, trial_mode, took, result == NULL ? Py_None : result);
        *current_scope() = saved;
        if (type != NULL) PyErr_Restore(type, value, traceback);
        else if (answer < 0) Py_CLEAR(result);
    }
done:
    Py_DECREF(trial);
    Py_DECREF(self);
    return result;
}

static PyObject *optimized_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {
    Wrapper *w = (Wrapper *)self;
    CallMode mode = thread_call_mode ? thread_call_mode : call_mode_of_stance();
    if (unlikely(mode == PLAIN)) return disabled_call(self, args, nargsf, names);
    if (unlikely(mode == REDIRECTED)) return redirected_call(self, args, nargsf, names);
    if (likely(w->trial == NULL) || is_under_hooks()) return compiled_call(self, args, nargsf, names);
    if (w->plain_calls > 0) {
        w->plain_calls--;
        return disabled_call(self, args, nargsf, names);
    }
    return trial_call(self, args, nargsf, names);
}

static PyObject *disabled_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {
    PyObject *fn = ((Wrapper *)self)->fn;
    Scope *current = current_scope(), saved = *current;
    PyObject *failure = Py_TYPE(self) == &Disabled_Type ? ((Wrapper *)self)->callback : NULL;
    if (saved.mode == MODE_OFF && failure == NULL) return PyObject_Vectorcall(fn, args, nargsf, names);
    Py_INCREF(self);
    current->mode = MODE_OFF;
    PyObject *result = PyObject_Vectorcall(fn, args, nargsf, names);
    *current_scope() = saved;
    if (result != NULL && failure != NULL) {
        PyErr_SetObject((PyObject *)Py_TYPE(failure), failure);
        Py_CLEAR(result);
    }
    Py_DECREF(self);
    return result;
}

static PyObject *watched_call(PyObject *self, PyObject *const *args, size_t nargsf, PyObject *names) {
    Py_INCREF(self);
    PyObject *result = PyObject_Vectorcall(((Wrapper *)self)->fn, args, nargsf, names);
    if (result != NULL) {
        Scope *current = current_scope(), saved = *current;
        current->mode = MODE_OFF;
        PyObject *answer = PyObject_CallNoArgs(((Wrapper *)self)->callback);
        *current_scope() = saved;
        if (answer == NULL) Py_CLEAR(result);
        Py_XDECREF(answer);
    }
    Py_DECREF(self);
    return result;
}

static PyObject *wrapper_make(PyTypeObject *type, PyObject *fn, PyObject *callback, PyObject *owner, vectorcallfunc call) {
    if (!PyCallable_Check(fn)) return PyErr_Format(PyExc_TypeError, "%R is not callable", fn), NULL;
    Wrapper *w = (Wrapper *)type->tp_alloc(type, 0);
    if (w == NULL) return NULL;
    w->vectorcall = call;
    w->fn = Py_NewRef(fn);
    w->callback = Py_XNewRef(callback);
    w->owner = Py_XNewRef(owner);
    return (PyObject *)w;
}

static PyObject *optimized_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"fn", "callback", "owner", NULL};
    PyObject *fn, *callback, *owner;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO!:Optimized", names, &fn, &callback, &Owner_Type, &owner)) return NULL;
    return wrapper_make(type, fn, callback, owner, optimized_call);
}

static PyObject *disabled_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"fn", "failure", NULL};
    PyObject *fn, *failure = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|O:Disabled", names, &fn, &failure)) return NULL;
    if (failure != Py_None && !PyExceptionInstance_Check(failure)) return PyErr_Format(PyExc_TypeError, "failure must be an exception or None, not %R", failure), NULL;
    return wrapper_make(type, fn, failure == Py_None ? NULL : failure, NULL, disabled_call);
}

static PyObject *watched_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"fn", "notify", NULL};
    PyObject *fn, *notify;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OO:Watched", names, &fn, &notify)) return NULL;
    return wrapper_make(type, fn, notify, NULL, watched_call);
}

static int wrapper_traverse(Wrapper *w, visitproc visit, void *arg) {
    Py_VISIT(w->fn);
    Py_VISIT(w->callback);
    Py_VISIT(w->owner);
    Py_VISIT(w->dict);
    Py_VISIT(w->trial);
    return 0;
}

static int wrapper_clear(Wrapper *w) {
    Py_CLEAR(w->trial);
    /* All other members stay, so that the wrapper can be called until deallocation. Every reference cycle
     * through them contains another object that can be cleared. */
    Py_CLEAR(w->dict);
    return 0;
}

static void wrapper_dealloc(Wrapper *w) {
    PyObject_GC_UnTrack(w);
    if (w->weakrefs) PyObject_ClearWeakRefs((PyObject *)w);
    Py_XDECREF(w->fn);
    Py_XDECREF(w->callback);
    Py_XDECREF(w->owner);
    Py_XDECREF(w->dict);
    Py_XDECREF(w->trial);
    Py_TYPE(w)->tp_free(w);
}

static PyObject *wrapper_bind(PyObject *self, PyObject *instance, PyObject *type) {
    (void)type;
    if (instance == NULL || instance == Py_None) return Py_NewRef(self);
    return PyMethod_New(self, instance);
}

static PyObject *wrapper_repr(Wrapper *w) { return PyUnicode_FromFormat("<%s %R>", Py_TYPE(w)->tp_name, w->fn); }

static PyMemberDef optimized_members[] = {
    {"fn", T_OBJECT, offsetof(Wrapper, fn), READONLY, "the wrapped callable"},
    {"callback", T_OBJECT, offsetof(Wrapper, callback), READONLY, "the callback that compiles new frames"},
    {"owner", T_OBJECT, offsetof(Wrapper, owner), READONLY, "the owner of the entries"},
    {"plain_calls", T_PYSSIZET, offsetof(Wrapper, plain_calls), 0, "how many calls run plainly before the trial is asked"},
    {NULL, 0, 0, 0, NULL},
};
static PyMemberDef disabled_members[] = {
    {"fn", T_OBJECT, offsetof(Wrapper, fn), READONLY, "the wrapped callable"},
    {NULL, 0, 0, 0, NULL},
};
static PyObject *optimized_trial(Wrapper *w, void *unused) {
    return Py_NewRef(w->trial ? w->trial : Py_None);
}

static int optimized_set_trial(Wrapper *w, PyObject *trial, void *unused) {
    Py_XSETREF(w->trial, trial == NULL || trial == Py_None ? NULL : Py_NewRef(trial));
    return 0;
}

static PyGetSetDef optimized_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"trial", (getter)optimized_trial, (setter)optimized_set_trial, "who is asked how to run a call, or None", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
static PyGetSetDef wrapper_getset[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define WRAPPER_SLOTS                                                                                             \
    .tp_basicsize = sizeof(Wrapper),                                                                              \
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_BASETYPE,       \
    .tp_dealloc = (destructor)wrapper_dealloc, .tp_traverse = (traverseproc)wrapper_traverse,                     \
    .tp_clear = (inquiry)wrapper_clear, .tp_call = PyVectorcall_Call,                                             \
    .tp_vectorcall_offset = offsetof(Wrapper, vectorcall), .tp_descr_get = wrapper_bind,                          \
    .tp_dictoffset = offsetof(Wrapper, dict), .tp_weaklistoffset = offsetof(Wrapper, weakrefs),                   \
    .tp_repr = (reprfunc)wrapper_repr

PyTypeObject Optimized_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fxstack_capture._native.Optimized",
    .tp_doc = "Optimized(fn, callback, owner): calls fn with compile mode on.",
    .tp_new = optimized_new,
    .tp_members = optimized_members,
    .tp_getset = optimized_getset,
    WRAPPER_SLOTS,
};
PyTypeObject Disabled_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fxstack_capture._native.Disabled",
    .tp_doc = "Disabled(fn, failure=None): calls fn with every mode off. If fn raises nothing, raises `failure`, if given.",
    .tp_new = disabled_new,
    .tp_members = disabled_members,
    .tp_getset = wrapper_getset,
    WRAPPER_SLOTS,
};
PyTypeObject Watched_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "fxstack_capture._native.Watched",
    .tp_doc = "Watched(fn, notify): calls fn in the present mode. If fn raises nothing, calls notify().",
    .tp_new = watched_new,
    .tp_members = disabled_members,
    .tp_getset = wrapper_getset,
    WRAPPER_SLOTS,
};

PyMethodDef scopes_methods[] = {
    {"run_with", (PyCFunction)(void *)py_run_with, METH_FASTCALL, "run_with(callback, owner, fn, args=(), kwargs=None)"},
    {"intercept", (PyCFunction)(void *)py_intercept, METH_FASTCALL | METH_KEYWORDS,
     "intercept(callback, fn, args=(), kwargs=None, passthrough=None)"},
    {"bypass", py_bypass, METH_O, "bypass(on) -> the old setting; while on, the Optimized callables of this thread run in plain Python"},
    {"redirect", py_redirect, METH_NOARGS, "redirect(): until bypass(...), the function of use_redirect makes the calls of this thread's Optimized callables"},
    {"use_redirect", py_use_redirect, METH_O, "use_redirect(function): set the function(optimized, *args, **kwargs) that makes redirected calls"},
    {NULL, NULL, 0, NULL},
};
