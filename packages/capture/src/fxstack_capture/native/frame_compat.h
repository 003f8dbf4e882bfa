/* Everything about interpreter frames that differs between CPython versions.
 *
 * A port to a new version changes this file (and object_compat.h for instance dictionaries) alone. */
#ifndef FXSTACK_FRAME_COMPAT_H
#define FXSTACK_FRAME_COMPAT_H
#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE_MODULE 1 /* the internal headers, as CPython's own extension modules use them */
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000
#error "fxstack-capture's frame hook supports CPython 3.11, 3.12 and 3.13"
#endif

#include "internal/pycore_frame.h"
#if PY_VERSION_HEX >= 0x030D0000
#include "internal/pycore_setobject.h" /* _PySet_NextEntry */
#endif

typedef struct _PyInterpreterFrame InterpreterFrame;

#define FXSTACK_313 (PY_VERSION_HEX >= 0x030D0000)
#define FXSTACK_312 (PY_VERSION_HEX >= 0x030C0000)

/* --- fields ------------------------------------------------------------------------------------ */

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

#if FXSTACK_312
static inline PyFunctionObject *frame_function(InterpreterFrame *f) {
    return (PyFunctionObject *)f->f_funcobj;
}
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
/* 3.11 computes the frame's size from co_stacksize: growing it is visible as code.co_stacksize, harmlessly. */
static inline void code_grow_framesize(PyCodeObject *c, Py_ssize_t by) { c->co_stacksize += (int)by; }
#define request_code_extra_index _PyEval_RequestCodeExtraIndex
#define set_code_extra _PyCode_SetExtra
#define get_code_extra _PyCode_GetExtra
#endif

/* The object of a weak reference, borrowed, None when it is gone. */
static inline PyObject *weak_target(PyObject *reference) { return ((PyWeakReference *)reference)->wr_object; }

/* --- disposing of a frame that never started ----------------------------------------------------
 *
 * On 3.12+ the evaluator clears and pops the frame that it is given; when we answer in its place, we do.
 * On 3.11 the caller of the evaluator does. */
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
    PyObjectArenaAllocator arena; /* what the hidden _PyObject_VirtualFree uses */
    PyObject_GetArenaAllocator(&arena);
    arena.free(arena.ctx, chunk, chunk->size);
    ts->datastack_limit = (PyObject **)(((char *)previous) + previous->size);
}
#endif
/* A frame that has returned holds nothing any more. */
static inline void frame_let_go(InterpreterFrame *f) { (void)f; }
static inline void frame_dispose(PyThreadState *ts, InterpreterFrame *f, int arguments) {
    PyCodeObject *code = frame_code(f);
    for (int i = 0; i < arguments; i++) Py_XDECREF(f->localsplus[i]);
    Py_XDECREF(f->f_locals);
    Py_DECREF(f->f_funcobj);
    frame_pop(ts, f);
    Py_DECREF(code);
}
#else
/* A frame that has returned holds its variables until the caller of the evaluator clears it: release them now. */
static inline void frame_let_go(InterpreterFrame *f) {
    if (f->frame_obj != NULL) return; /* somebody may look at them */
    for (int i = 0; i < f->f_code->co_nlocalsplus; i++) Py_CLEAR(f->localsplus[i]);
}
static inline void frame_dispose(PyThreadState *ts, InterpreterFrame *f, int arguments) {
    (void)ts, (void)f, (void)arguments;
}
#endif

/* --- C recursion --------------------------------------------------------------------------------
 *
 * With any evaluator installed every Python call nests C evaluators, and 3.12/3.13 count those against a fixed
 * limit (1500/2 levels on 3.12.1). The hook gives back what the evaluator takes, so that only the
 * Python limit counts, and watches the real stack instead (hook.c, stack_is_low). */
#if FXSTACK_312
#define RECURSION_SAVE(ts) int recursion_kept = (ts)->c_recursion_remaining; (ts)->c_recursion_remaining = recursion_kept + 2
#define RECURSION_RESTORE(ts) (ts)->c_recursion_remaining = recursion_kept
#else
#define RECURSION_SAVE(ts) (void)0
#define RECURSION_RESTORE(ts) (void)0
#endif

/* What the compiler may use beside what the program has left of its recursion limit: a program that has nearly
 * reached it is compiled (or refused) all the same, and handles its own RecursionError. */
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

/* Give a fresh frame another code object. 0: the data stack has no room for it here. */
static inline int frame_swap_code(PyThreadState *ts, InterpreterFrame *f, PyCodeObject *code) {
    PyCodeObject *old = frame_code(f);
    PyObject **base = (PyObject **)f;
    Py_ssize_t need = code_framesize(code);
    if (ts->datastack_limit - base <= need) return 0;
    int slots = code->co_nlocalsplus;
    for (int i = code_argument_slots(code); i < slots; i++) f->localsplus[i] = NULL;
    Py_INCREF(code);
    frame_start_at(f, code);
    f->stacktop = slots;
    ts->datastack_top = base + need;
    Py_DECREF(old);
    return 1;
}

#endif
