/* The parts of interpreter frames that differ between CPython versions.
 *
 * docs/porting.md lists the other files that a port to a new version changes. */
#ifndef FXSTACK_FRAME_COMPAT_H
#define FXSTACK_FRAME_COMPAT_H
#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE_MODULE 1 /* the internal headers, as CPython's own extension modules use them */
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030F0000
#error "fxstack-capture's frame hook supports CPython 3.11 to 3.14"
#endif
#ifdef Py_GIL_DISABLED
#error "fxstack-capture's frame hook needs a Python with the GIL: frames of the free-threaded build are evaluated by several threads at once"
#endif

#include "internal/pycore_frame.h"
#if PY_VERSION_HEX >= 0x030C0000
#include "internal/pycore_instruments.h" /* PY_MONITORING_DEBUGGER_ID */
#include "internal/pycore_interp.h"
#endif
#if PY_VERSION_HEX >= 0x030D0000
#include "internal/pycore_setobject.h" /* _PySet_NextEntry */
#endif
#if PY_VERSION_HEX >= 0x030E0000
#include "internal/pycore_interpframe.h"
#endif

typedef struct _PyInterpreterFrame InterpreterFrame;

#define FXSTACK_314 (PY_VERSION_HEX >= 0x030E0000)
#define FXSTACK_313 (PY_VERSION_HEX >= 0x030D0000)
#define FXSTACK_312 (PY_VERSION_HEX >= 0x030C0000)

/* --- fields ------------------------------------------------------------------------------------ */

/* A variable of a frame. Since 3.14 it is a tagged reference. If the lowest bit is set, the frame does not own a
 * reference count. */
#if FXSTACK_314
typedef _PyStackRef Slot;
#define EMPTY_SLOT PyStackRef_NULL
static inline PyObject *slot_object(Slot s) { return PyStackRef_IsNull(s) ? NULL : PyStackRef_AsPyObjectBorrow(s); }
static inline Slot slot_taking(PyObject *o) { return o == NULL ? PyStackRef_NULL : PyStackRef_FromPyObjectSteal(o); }
static inline void slot_clear(Slot *s) { PyStackRef_XCLOSE(*s); *s = PyStackRef_NULL; }
static inline PyCodeObject *frame_code(InterpreterFrame *f) { return _PyFrame_GetCode(f); }
static inline PyFunctionObject *frame_function(InterpreterFrame *f) { return _PyFrame_GetFunction(f); }
/* frame_start_at steals the reference to the code. frame_release_function releases the frame's reference
 * to the function. */
static inline void frame_start_at(InterpreterFrame *f, PyCodeObject *c) {
    f->f_executable = PyStackRef_FromPyObjectSteal((PyObject *)c);
    f->instr_ptr = _PyCode_CODE(c);
}
#define frame_release_function(f) PyStackRef_CLOSE((f)->f_funcobj)
#define frame_set_top(f, slots) ((f)->stackpointer = (f)->localsplus + (slots))
#else
typedef PyObject *Slot;
#define EMPTY_SLOT NULL
static inline PyObject *slot_object(Slot s) { return s; }
static inline Slot slot_taking(PyObject *o) { return o; }
static inline void slot_clear(Slot *s) { Py_CLEAR(*s); }
#define frame_release_function(f) Py_DECREF(frame_function(f))
#define frame_set_top(f, slots) ((f)->stacktop = (slots))
#if FXSTACK_313
static inline PyCodeObject *frame_code(InterpreterFrame *f) { return (PyCodeObject *)f->f_executable; }
static inline void frame_start_at(InterpreterFrame *f, PyCodeObject *c) {
    f->f_executable = (PyObject *)c;
    f->instr_ptr = _PyCode_CODE(c);
}
#else
static inline PyCodeObject *frame_code(InterpreterFrame *f) { return f->f_code; }
static inline void frame_start_at(InterpreterFrame *f, PyCodeObject *c) {
    f->f_code = c;
    f->prev_instr = _PyCode_CODE(c) - 1;
}
#endif
#endif

/* Whether a debugger has registered itself with sys.monitoring, which is new in 3.12. */
static inline int has_debugging_tool(PyThreadState *ts) {
#if FXSTACK_312
    return ts->interp->monitoring_tool_names[PY_MONITORING_DEBUGGER_ID] != NULL;
#else
    return (void)ts, 0;
#endif
}

#if FXSTACK_312
#if !FXSTACK_314
static inline PyFunctionObject *frame_function(InterpreterFrame *f) {
    return (PyFunctionObject *)f->f_funcobj;
}
#endif
static inline Py_ssize_t code_framesize(PyCodeObject *c) { return c->co_framesize; }
static inline void code_grow_framesize(PyCodeObject *c, Py_ssize_t by) { c->co_framesize += (int)by; }
#define request_code_extra_index PyUnstable_Eval_RequestCodeExtraIndex
#define set_code_extra PyUnstable_Code_SetExtra
#define get_code_extra PyUnstable_Code_GetExtra
#else
static inline PyFunctionObject *frame_function(InterpreterFrame *f) { return f->f_func; }
static inline Py_ssize_t code_framesize(PyCodeObject *c) {
    return c->co_nlocalsplus + c->co_stacksize + (Py_ssize_t)FRAME_SPECIALS_SIZE;
}
/* 3.11 computes the frame size from co_stacksize. The larger co_stacksize is visible as code.co_stacksize. It
 * has no other effect. */
static inline void code_grow_framesize(PyCodeObject *c, Py_ssize_t by) { c->co_stacksize += (int)by; }
#define request_code_extra_index _PyEval_RequestCodeExtraIndex
#define set_code_extra _PyCode_SetExtra
#define get_code_extra _PyCode_GetExtra
#endif

/* The referent of a weak reference, borrowed. None if the referent has been freed. */
static inline PyObject *weak_target(PyObject *reference) { return ((PyWeakReference *)reference)->wr_object; }

/* --- disposing of a frame that never started ----------------------------------------------------
 *
 * On 3.12 and later the evaluator clears and pops the frame that it receives. If the hook returns a result
 * without evaluating the frame, the hook must clear and pop it. On 3.11 the caller of the evaluator does
 * both. */
#if FXSTACK_312
#if FXSTACK_313
#define frame_pop _PyThreadState_PopFrame
#else
static inline void frame_pop(PyThreadState *ts, InterpreterFrame *f) {
    PyObject **base = (PyObject **)f;
    if (base != &ts->datastack_chunk->data[0]) {
        ts->datastack_top = base;
        return;
    }
    _PyStackChunk *chunk = ts->datastack_chunk, *previous = chunk->previous;
    ts->datastack_top = &previous->data[previous->top];
    ts->datastack_chunk = previous;
    PyObjectArenaAllocator arena; /* The hidden function _PyObject_VirtualFree uses this arena. */
    PyObject_GetArenaAllocator(&arena);
    arena.free(arena.ctx, chunk, chunk->size);
    ts->datastack_limit = (PyObject **)(((char *)previous) + previous->size);
}
#endif
/* A frame that has returned holds no variables. */
static inline void frame_let_go(InterpreterFrame *f) { (void)f; }
static inline void frame_dispose(PyThreadState *ts, InterpreterFrame *f, int arguments) {
    PyCodeObject *code = frame_code(f);
    for (int i = 0; i < arguments; i++) slot_clear(&f->localsplus[i]);
    Py_XDECREF(f->f_locals);
    frame_release_function(f);
    frame_pop(ts, f);
    Py_DECREF(code);
}
#else
/* A frame that has returned keeps its variables until the caller of the evaluator clears the frame.
 * Release the variables now. */
static inline void frame_let_go(InterpreterFrame *f) {
    /* If somebody holds a frame object, Python code can read the variables through it. The compiler also makes
     * frame objects, where it looks for the caller's line, but nobody holds these. */
    if (f->frame_obj != NULL && Py_REFCNT(f->frame_obj) > 1) return;
    for (int i = 0; i < f->f_code->co_nlocalsplus; i++) slot_clear(&f->localsplus[i]);
}
static inline void frame_dispose(PyThreadState *ts, InterpreterFrame *f, int arguments) {
    (void)ts, (void)f, (void)arguments;
}
#endif

/* --- C recursion --------------------------------------------------------------------------------
 *
 * With a custom evaluator installed, every Python call nests C evaluators. 3.12 and 3.13 count nested C
 * evaluators against a fixed limit (1500/2 levels on 3.12.1). The hook restores the counter that the
 * evaluator decrements, so that only the Python limit counts. The hook checks the real stack instead
 * (hook.c, stack_is_low). */
#if FXSTACK_312 && !FXSTACK_314 /* 3.14 checks the real stack itself. */
#define RECURSION_SAVE(ts) int recursion_kept = (ts)->c_recursion_remaining; (ts)->c_recursion_remaining = recursion_kept + 2
#define RECURSION_RESTORE(ts) (ts)->c_recursion_remaining = recursion_kept
#else
#define RECURSION_SAVE(ts) (void)0
#define RECURSION_RESTORE(ts) (void)0
#endif

/* The compiler's own recursion depth, in addition to the depth that the program has left. Without it, a program
 * that has almost reached its recursion limit could not be compiled. Such a program is compiled (or refused),
 * and handles its own RecursionError. */
#define COMPILER_DEPTH 2000
#if FXSTACK_312
#define RECURSION_LEFT(ts) ((ts)->py_recursion_remaining)
#else
#define RECURSION_LEFT(ts) ((ts)->recursion_remaining)
#endif

/* --- arguments ---------------------------------------------------------------------------------- */

static inline int code_argument_slots(PyCodeObject *c) {
    return c->co_argcount + c->co_kwonlyargcount + !!(c->co_flags & CO_VARARGS) +
           !!(c->co_flags & CO_VARKEYWORDS);
}

/* Replaces the code object of a frame that has not started. 0: the data stack has no room for the larger frame
 * at this place. */
static inline int frame_swap_code(PyThreadState *ts, InterpreterFrame *f, PyCodeObject *code) {
    PyCodeObject *old = frame_code(f);
    PyObject **base = (PyObject **)f;
    Py_ssize_t need = code_framesize(code);
    if (ts->datastack_limit - base <= need) return 0;
    int slots = code->co_nlocalsplus;
    for (int i = code_argument_slots(code); i < slots; i++) f->localsplus[i] = EMPTY_SLOT;
    Py_INCREF(code);
    frame_start_at(f, code);
    frame_set_top(f, slots);
    ts->datastack_top = base + need;
    Py_DECREF(old);
    return 1;
}

#endif
