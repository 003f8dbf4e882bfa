/* The frame evaluator (PEP 523). It runs for each call of a Python function while a mode is on.
 *
 * Compile mode looks for an entry whose guards hold, and swaps the code object in the frame, which has not
 * started. If there is no such entry, it calls the callback. Intercept mode calls the callback in place of
 * the frame.
 *
 * Limits: while a compiled call is active in any thread, CPython does not inline calls, so a caller keeps
 * arguments alive during a call. sys.setprofile and coverage tools do not see inlined frames; under other trace
 * functions all frames run in plain Python. */
#include "frame_hook.h"
#include <pthread.h>

static __thread Scope thread_scope;
/* The lowest C stack address at which the hook still evaluates frames. */
static __thread char *thread_stack_floor;

static _PyFrameEvalFunction below = _PyEval_EvalFrameDefault; /* The evaluator that was installed before. */
static __thread InterpreterFrame *handed_on;             /* The frame that was last passed to ``below``. */

/* The evaluator `below` may meanwhile have installed itself on top of this hook, and may pass the same frame
 * back. evaluator() recognises this frame and ends the cycle. */
static PyObject *chained(PyThreadState *ts, InterpreterFrame *f, int throwflag) {
    if (likely(below == _PyEval_EvalFrameDefault)) return _PyEval_EvalFrameDefault(ts, f, throwflag);
    InterpreterFrame *outer = handed_on;
    handed_on = f;
    PyObject *result = below(ts, f, throwflag);
    handed_on = outer;
    return result;
}
static _PyFrameEvalFunction restored; /* The evaluator to restore. */
static int installed_count;
/* Whether another evaluator was on top when the hook was released. That evaluator may still call this hook. */
static int left_behind;
static Py_ssize_t shadow_calls;

Scope *current_scope(void) { return &thread_scope; }

/* --- running ------------------------------------------------------------------------------------- */

static COLD PyObject *fail_frame(PyThreadState *ts, InterpreterFrame *f) {
    frame_dispose(ts, f, code_argument_slots(frame_code(f)));
    return NULL;
}

/* The data stack has no room for the larger frame at this place. Instead, call a function that is made from the
 * replacement code. */
static COLD PyObject *run_shadow(PyThreadState *ts, InterpreterFrame *f, Entry *e, PyObject *inputs) {
    PyFunctionObject *func = frame_function(f);
    Scope saved = thread_scope;
    thread_scope.mode = MODE_OFF;
    PyCodeObject *flat = entry_flat_code(e);
    PyObject *shadow = flat ? PyFunction_New((PyObject *)flat, func->func_globals) : NULL;
    if (shadow && func->func_closure && PyFunction_SetClosure(shadow, func->func_closure) < 0) Py_CLEAR(shadow);
    thread_scope = saved;
    int arguments = code_argument_slots(e->code);
    PyObject **slots = shadow ? PyMem_Malloc((arguments + 1) * sizeof *slots) : NULL;
    if (slots == NULL) {
        Py_XDECREF(shadow);
        Py_XDECREF(inputs);
        if (!PyErr_Occurred()) PyErr_NoMemory();
        return fail_frame(ts, f);
    }
    shadow_calls++;
    for (int i = 0; i < arguments; i++) slots[i] = slot_object(f->localsplus[i]);
    slots[arguments] = inputs;
    PyObject *result = PyObject_Vectorcall(shadow, slots, arguments + e->takes_inputs, NULL);
    PyMem_Free(slots);
    Py_DECREF(shadow);
    Py_XDECREF(inputs);
    frame_dispose(ts, f, code_argument_slots(frame_code(f)));
    return result;
}

/* --- continuations -------------------------------------------------------------------------------
 *
 * A replacement that stops in the middle of its frame returns a continuation: (callable, arguments). The
 * hook calls the callable after the frame is gone. The callable takes the place of the frame in tracebacks
 * and on the stack. Therefore a frame that is continued a thousand times nests no deeper than one call. */

static PyTypeObject *continuation_type;
/* The code of the next frame. run_continuations() handles the continuation of this frame. */
static __thread PyCodeObject *continued_code;
/* Owned. The reference is dropped as soon as the continued frame has taken the arguments. */
static __thread PyObject *continued_arguments;

static PyObject *py_use_continuation(PyObject *module, PyObject *type) {
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type))
        return PyErr_SetString(PyExc_TypeError, "continuations must be a subclass of tuple"), NULL;
    Py_XSETREF(continuation_type, (PyTypeObject *)Py_NewRef(type));
    Py_RETURN_NONE;
}

/* Whether a run_continuations() further down the stack will handle the continuation that the frame returns. */
static inline int is_continued(PyCodeObject *code) {
    if (likely(continued_code != code)) return 0;
    continued_code = NULL;
    Py_CLEAR(continued_arguments);
    return 1;
}

static inline int is_continuation(PyObject *result) { return result != NULL && Py_IS_TYPE(result, continuation_type); }

static PyObject *run_continuations(PyObject *result) {
    while (is_continuation(result)) {
        PyObject *fn = PyTuple_Size(result) == 2 ? PyTuple_GET_ITEM(result, 0) : NULL;
        if (fn == NULL || !PyCallable_Check(fn) || !PyTuple_CheckExact(PyTuple_GET_ITEM(result, 1))) {
            Py_DECREF(result);
            return PyErr_SetString(PyExc_TypeError, "a continuation must be (callable, tuple)"), NULL;
        }
        PyObject *args = Py_NewRef(PyTuple_GET_ITEM(result, 1));
        Py_INCREF(fn);
        Py_DECREF(result);
        continued_code = PyFunction_Check(fn) ? (PyCodeObject *)((PyFunctionObject *)fn)->func_code : NULL;
        continued_arguments = args;
        result = PyObject_Vectorcall(fn, ((PyTupleObject *)args)->ob_item, PyTuple_GET_SIZE(args), NULL);
        if (continued_arguments == args) { /* The hook did not see the frame. */
            continued_code = NULL;
            Py_CLEAR(continued_arguments);
        }
        Py_DECREF(fn);
    }
    return result;
}

/* The namespace of torch.autograd.profiler, and the name of the flag that a profiler sets in it. Profiles then
 * show the run of an entry as a region. */
static PyObject *profiler, *profiler_flag;
static Py_hash_t profiler_flag_hash;

static PyObject *py_use_profiler(PyObject *module, PyObject *namespace) {
    if (!PyDict_CheckExact(namespace)) return PyErr_SetString(PyExc_TypeError, "the namespace must be a dict"), NULL;
    if (profiler_flag == NULL && (profiler_flag = PyUnicode_InternFromString("_is_profiler_enabled")) == NULL) return NULL;
    profiler_flag_hash = PyObject_Hash(profiler_flag);
    Py_XSETREF(profiler, Py_NewRef(namespace));
    Py_RETURN_NONE;
}

static inline int is_profiled(void) {
    static Py_ssize_t hint;
    return likely(profiler != NULL) && unlikely(dict_find(profiler, profiler_flag, profiler_flag_hash, &hint) == Py_True);
}

static COLD void *begin_region(Entry *e) {
    if (e->region == NULL || !PyUnicode_Check(e->region) || tensors->begin_region == NULL) return NULL;
    const char *name = PyUnicode_AsUTF8(e->region);
    return name != NULL ? tensors->begin_region(name) : (PyErr_Clear(), NULL);
}

static inline PyObject *run_swapped(PyThreadState *ts, InterpreterFrame *f, Entry *e, PyObject *inputs) {
    if (e->takes_inputs) f->localsplus[code_argument_slots(e->code)] = slot_taking(inputs);
    return chained(ts, f, 0);
}

/* `inputs` is the tuple that accepts() has collected. run_entry steals the reference. */
static inline PyObject *run_entry(PyThreadState *ts, InterpreterFrame *f, Entry *e, PyObject *inputs, int continued) {
    e->hits++;
    void *region = unlikely(is_profiled()) ? begin_region(e) : NULL;
    int fits = likely(frame_swap_code(ts, f, e->code));
    PyObject *result = fits ? run_swapped(ts, f, e, inputs) : run_shadow(ts, f, e, inputs);
    if (unlikely(region != NULL)) tensors->end_region(region);
    if (likely(continued || !is_continuation(result))) return result;
    frame_let_go(f);
    return run_continuations(result);
}

/* --- compile mode: asking ------------------------------------------------------------------------ */

static PyObject *call_callback(PyThreadState *ts, InterpreterFrame *f, Scope scope) {
    PyFunctionObject *func = frame_function(f);
    PyObject *closure = func->func_closure ? Py_NewRef(func->func_closure) : PyTuple_New(0);
    PyObject *locals = closure ? frame_locals(f) : NULL;
    PyObject *answer = NULL;
    if (locals != NULL) {
        PyObject *args[] = {(PyObject *)func, (PyObject *)frame_code(f), locals, closure};
        Py_INCREF(scope.callback);
        PyThreadState_EnterTracing(ts); /* Debuggers and profilers do not see the compiler. */
        RECURSION_LEFT(ts) += COMPILER_DEPTH;
        answer = PyObject_Vectorcall(scope.callback, args, 4, NULL);
        RECURSION_LEFT(ts) -= COMPILER_DEPTH;
        PyThreadState_LeaveTracing(ts);
        Py_DECREF(scope.callback);
    }
    Py_XDECREF(locals);
    Py_XDECREF(closure);
    return answer;
}

/* `inputs`: a new reference if the entry takes inputs, otherwise NULL. */
static int accepts(Entry *e, InterpreterFrame *f, PyObject **inputs) {
    *inputs = NULL;
    if (e->tree == NULL) return 1;
    Mode mode = thread_scope.mode;
    Py_INCREF(e);
    thread_scope.mode = MODE_OFF; /* An attribute that is implemented in C may call Python code. */
    int ok = tree_check(e->tree, frame_function(f), f->localsplus, e->takes_inputs ? inputs : NULL);
    thread_scope.mode = mode;
    Py_DECREF(e);
    return ok;
}

static COLD PyObject *miss(PyThreadState *ts, InterpreterFrame *f, int continued) {
    Scope saved = thread_scope;
    thread_scope = (Scope){MODE_OFF, NULL, NULL, NULL};
    PyCodeObject *code = frame_code(f);
    PyObject *answer = call_callback(ts, f, saved);
    Entry *entry = NULL;
    PyObject *inputs = NULL;
    int bad = answer == NULL;
    if (answer == answer_skip) {
        bad = code_skip(code, saved.owner) < 0;
    } else if (answer != NULL && Py_IS_TYPE(answer, &Entry_Type)) {
        entry = (Entry *)answer;
        if (entry->group == NULL) bad = entry_install(code, entry) < 0;
        if (!bad && (entry->group->state->code != code || !accepts(entry, f, &inputs))) entry = NULL;
    } else if (answer != NULL && answer != answer_run) {
        PyErr_Format(PyExc_TypeError, "the compile callback must return an Entry, SKIP or RUN, not %.200s",
                     Py_TYPE(answer)->tp_name);
        bad = 1;
    }
    thread_scope = saved;
    PyObject *result;
    if (bad) result = fail_frame(ts, f);
    else if (entry != NULL) result = run_entry(ts, f, entry, inputs, continued);
    else result = chained(ts, f, 0);
    Py_XDECREF(answer);
    return result;
}

/* --- compile mode -------------------------------------------------------------------------------- */

/* Returns the first entry that accepts the frame. The entry that was hit last is tried first. Under saved-tensor
 * hooks, the oldest entry is tried first: a checkpoint exchanges the saved tensors of a call with those of a
 * later call. Both calls must find the same entry, even if others were compiled or called in between. */
static inline Entry *lookup(CodeState *state, Group *group, InterpreterFrame *f, PyObject **inputs) {
    int by_age = began_under_hooks();
again:;
    uint32_t changes = state->changes;
    Entry *found = NULL;
    *inputs = NULL;
    for (int i = 0; i < group->count; i++) {
        Entry *e = group->entries[i];
        if (unlikely(found != NULL && found->age < e->age)) continue;
        PyObject *collected;
        int ok = accepts(e, f, &collected);
        if (unlikely(state->changes != changes)) { /* A check has freed an object, and this has removed entries. */
            Py_XDECREF(collected);
            Py_CLEAR(*inputs);
            group = find_group(state, thread_scope.owner);
            if (group == NULL) return NULL;
            goto again;
        }
        if (!ok) continue;
        Py_XSETREF(*inputs, collected);
        found = e;
        if (unlikely(by_age)) continue;
        if (i > 0) {
            memmove(&group->entries[1], &group->entries[0], i * sizeof(Entry *));
            group->entries[0] = e;
        }
        break;
    }
    return found;
}

#define GENERATOR_FLAGS (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)
#define FUNCTION_FLAGS (CO_OPTIMIZED | CO_NEWLOCALS)

static inline int is_function_call(PyCodeObject *code, InterpreterFrame *f) {
    return (code->co_flags & FUNCTION_FLAGS) == FUNCTION_FLAGS && f->owner == FRAME_OWNED_BY_THREAD;
}

static PyObject *compile_frame(PyThreadState *ts, InterpreterFrame *f) {
    PyCodeObject *code = frame_code(f);
    int continued = is_continued(code);
    CodeState *state = code_state(code);
    if (state != NULL) {
        if (state->skip_all) return chained(ts, f, 0);
        Group *group = find_group(state, thread_scope.owner);
        if (group != NULL) {
            PyObject *inputs;
            Entry *e = group->count && is_function_call(code, f) ? lookup(state, group, f, &inputs) : NULL;
            if (likely(e != NULL)) {
                e->group->uses++;
                return run_entry(ts, f, e, inputs, continued);
            }
            group = find_group(state, thread_scope.owner); /* A check may have dropped the group. */
            if (group != NULL && group->skip) return chained(ts, f, 0);
        }
    }
    if (!is_function_call(code, f) || (code->co_flags & GENERATOR_FLAGS)) return chained(ts, f, 0);
    return miss(ts, f, continued);
}

/* --- intercept mode ------------------------------------------------------------------------------ */

static PyObject *answer_instead(PyThreadState *ts, InterpreterFrame *f) {
    PyCodeObject *code = frame_code(f);
    Scope saved = thread_scope;
    thread_scope = (Scope){MODE_OFF, NULL, NULL, NULL};
    PyObject *result = NULL;
    PyObject *args = positional_arguments(code, f->localsplus);
    PyObject *kwargs = args ? keyword_arguments(code, f->localsplus) : NULL;
    if (kwargs != NULL) {
        PyObject *call[] = {(PyObject *)frame_function(f), args, kwargs};
        Py_INCREF(saved.callback);
        result = PyObject_Vectorcall(saved.callback, call, 3, NULL);
        Py_DECREF(saved.callback);
    }
    Py_XDECREF(args);
    Py_XDECREF(kwargs);
    thread_scope = saved;
    frame_dispose(ts, f, code_argument_slots(code));
    return result;
}

static PyObject *run_with_modes_off(PyThreadState *ts, InterpreterFrame *f, int throwflag) {
    Scope saved = thread_scope;
    thread_scope = (Scope){MODE_OFF, NULL, NULL, NULL};
    PyObject *result = chained(ts, f, throwflag);
    thread_scope = saved;
    return result;
}

static PyObject *intercept_frame(PyThreadState *ts, InterpreterFrame *f, int throwflag) {
    PyCodeObject *code = frame_code(f);
    if (thread_scope.passthrough != NULL) {
        int decision = passthrough_decides(thread_scope.passthrough, code);
        if (decision > 0) return run_with_modes_off(ts, f, throwflag);
        /* There is no memory for the cache. Treat the code as not matched by the Passthrough. */
        if (decision < 0) PyErr_Clear();
    }
    if (throwflag || !is_function_call(code, f)) return chained(ts, f, throwflag);
    CodeState *state = code_state(code);
    if (state != NULL && state->never_intercept) return chained(ts, f, throwflag);
    return answer_instead(ts, f);
}

/* --- the evaluator ------------------------------------------------------------------------------- */

static COLD char *find_stack_floor(void) {
    pthread_attr_t attributes;
    void *base;
    size_t size;
    char *floor = (char *)(uintptr_t)1; /* Unknown. Python's own limits apply. */
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        if (pthread_attr_getstack(&attributes, &base, &size) == 0)
            floor = (char *)base + (size > (1 << 20) ? 256 << 10 : size / 4);
        pthread_attr_destroy(&attributes);
    }
    return thread_stack_floor = floor;
}

static inline int stack_is_low(void) {
    char here, *floor = thread_stack_floor;
    if (unlikely(floor == NULL)) floor = find_stack_floor();
    return &here < floor;
}

static COLD PyObject *refuse_depth(PyThreadState *ts, InterpreterFrame *f, int throwflag) {
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded (C stack)");
    if (f->owner == FRAME_OWNED_BY_THREAD && !throwflag) return fail_frame(ts, f);
    return chained(ts, f, 1);
}

/* --- debuggers ----------------------------------------------------------------------------------- */

static PyObject *debugging; /* The function that decides whether a trace function is a debugger. */

SETTER(py_use_debugging, debugging)

/* Whether a debugger follows the frames of the thread, or the frame belongs to a trace function. */
static COLD int ask_debugging(PyThreadState *ts) {
    if (ts->tracing) return 1;
    if (debugging == NULL) return 0;
    Scope saved = thread_scope;
    thread_scope = (Scope){MODE_OFF, NULL, NULL, NULL};
    PyThreadState_EnterTracing(ts);
    PyObject *answer = PyObject_CallOneArg(debugging, ts->c_traceobj != NULL ? ts->c_traceobj : Py_None);
    PyThreadState_LeaveTracing(ts);
    thread_scope = saved;
    if (answer == NULL) PyErr_Clear(); /* The warning is an error. The frame still runs in plain Python. */
    int plain = answer == NULL || answer == Py_True;
    Py_XDECREF(answer);
    return plain;
}

static inline int is_debugged(PyThreadState *ts) {
    return unlikely(ts->c_tracefunc != NULL || has_debugging_tool(ts)) && ask_debugging(ts);
}

static inline PyObject *evaluate(PyThreadState *ts, InterpreterFrame *f, int throwflag) {
    Mode mode = thread_scope.mode;
    if (mode == MODE_OFF) return chained(ts, f, throwflag);
    if (mode == MODE_INTERCEPT) return intercept_frame(ts, f, throwflag);
    if (throwflag || is_debugged(ts)) return chained(ts, f, throwflag);
    return compile_frame(ts, f);
}

static PyObject *hidden_file; /* The co_filename of code whose frames no traceback shows. */

SETTER(py_hide_file, hidden_file)

/* Remove the traceback entry that a hidden frame has added to the exception. */
static COLD void drop_traceback_entry(void) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL && PyTraceBack_Check(traceback)) {
        PyCodeObject *code = PyFrame_GetCode(((PyTracebackObject *)traceback)->tb_frame);
        if (code->co_filename == hidden_file) {
            PyObject *next = (PyObject *)((PyTracebackObject *)traceback)->tb_next;
            PyException_SetTraceback(value, next == NULL ? Py_None : next);
            Py_XINCREF(next);
            Py_SETREF(traceback, next);
        }
        Py_DECREF(code);
    }
    PyErr_Restore(type, value, traceback);
}

static PyObject *evaluator(PyThreadState *ts, InterpreterFrame *f, int throwflag) {
    if (unlikely(handed_on == f)) {
        handed_on = NULL;
        return _PyEval_EvalFrameDefault(ts, f, throwflag);
    }
    if (unlikely(stack_is_low())) return refuse_depth(ts, f, throwflag);
    int hidden = frame_code(f)->co_filename == hidden_file;
    RECURSION_SAVE(ts);
    PyObject *result = evaluate(ts, f, throwflag);
    RECURSION_RESTORE(ts);
    if (unlikely(hidden) && result == NULL) drop_traceback_entry();
    return result;
}

/* --- installing ---------------------------------------------------------------------------------- */

int hook_retain(void) {
    if (installed_count++ > 0) return 0;
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    _PyFrameEvalFunction top = _PyInterpreterState_GetEvalFrameFunc(interpreter);
    if (top == evaluator) return 0; /* The evaluator that was on top of the hook has already restored the hook. */
    restored = top;
    /* If another evaluator stayed on top of the hook, it may call the hook. Calling that evaluator from the hook
     * could be an endless cycle. */
    below = left_behind ? _PyEval_EvalFrameDefault : top;
    _PyInterpreterState_SetEvalFrameFunc(interpreter, evaluator);
    return 0;
}

void hook_release(void) {
    if (--installed_count > 0) return;
    PyInterpreterState *interpreter = PyInterpreterState_Get();
    if (_PyInterpreterState_GetEvalFrameFunc(interpreter) != evaluator) {
        left_behind = 1;
        return;
    }
    _PyInterpreterState_SetEvalFrameFunc(interpreter, restored);
}

/* --- functions of the module --------------------------------------------------------------------- */

static PyObject *py_mode(PyObject *module, PyObject *unused) {
    static const char *const names[] = {"off", "compile", "intercept"};
    return PyUnicode_FromString(names[thread_scope.mode]);
}

static PyObject *py_stats(PyObject *module, PyObject *unused) {
    return Py_BuildValue("{s:n,s:i}", "shadow_calls", shadow_calls, "active", installed_count);
}

PyMethodDef hook_methods[] = {
    {"mode", py_mode, METH_NOARGS, "mode() -> 'off', 'compile' or 'intercept'"},
    {"hide_file", py_hide_file, METH_O, "hide_file(name): remove frames of code whose co_filename is this str object from tracebacks"},
    {"use_debugging", py_use_debugging, METH_O, "use_debugging(is_debugged): set the function that says of a trace function whether frames run in plain Python under it"},
    {"use_profiler", py_use_profiler, METH_O, "use_profiler(namespace): set the dict whose _is_profiler_enabled says whether runs of entries are regions of a profile"},
    {"use_continuation", py_use_continuation, METH_O, "use_continuation(type): set the tuple subclass (callable, args) that replacement code returns to continue in a call"},
    {"stats", py_stats, METH_NOARGS, "stats() -> dictionary of counters"},
    {NULL, NULL, 0, NULL},
};
