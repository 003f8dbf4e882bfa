"""The frame hook and the guard engine: typed access to the C extension ``fxstack_capture._native``.

Importing this module never fails. If the extension is missing, ``AVAILABLE`` is False, and ``WHY_MISSING``
says why and what to install. Every function and class below then raises ``NativeMissingError`` when called.
``SKIP`` and ``RUN`` always exist.

**Compile mode** is a state of a thread: the hook looks for entries. It is on only while one of these calls
runs::

    run_with(callback, owner, fn, args=(), kwargs=None)   # fn(*args, **kwargs) with compile mode on
    Optimized(fn, callback, owner)   # a callable that does the same; it binds as a method, has a
                                     # __dict__ (functools.update_wrapper works) and weak references
    Optimized.trial                  # None, or an object with the methods
                                     # begin(optimized) -> 0 (compiled), 1 (compiled, timed)
                                     # or 2 (plain, timed), and, for timed calls that do not raise,
                                     # end(optimized, plain, nanoseconds, result)
    Optimized.plain_calls            # number of calls that run in plain Python before the trial is asked
    Disabled(fn)                     # a callable that runs fn with every mode off
    Watched(fn, notify)              # a callable that runs fn, and calls notify() if fn does not raise
    bypass(on) -> bool               # run Optimized callables of this thread plainly; returns the old state
    use_redirect(function)           # redirected calls call function(optimized, *args, **kwargs)
    redirect()                       # redirect Optimized callables of this thread, until bypass(...)
    mode() -> "off" | "compile" | "intercept"   # the present mode of this thread
    use_hooks(function)                         # function(True) returns the innermost saved-tensor hooks
    hooks() -> "off" | "outside" | "checkpoint" | "inside"  # whether such hooks are on, and where they were entered:
                                                # outside (also by a checkpoint) or inside of the innermost
                                                # running Optimized call

``owner`` is an instance of ``Owner`` or of a subclass. An entry belongs to one owner and is freed together
with it. If no entry of this owner accepts a new frame of a function, the hook calls the callback. It does not
call the callback for generators, coroutines, class bodies and modules. During the callback, all modes are
off, and tracing (sys.settrace, sys.setprofile) is suspended::

    callback(func: FunctionType, code: CodeType, locals: dict[str, object], cells: tuple[CellType, ...])

``locals`` are the arguments by name, as in the frame (``*args`` as one tuple, ``**kwargs`` as one dict).
``cells`` is the closure. The callback returns

- an ``Entry``: the hook installs it for ``code`` (if it is not installed yet), checks its guards, and runs it
  in place of the frame. If the guards reject this frame, the frame runs in plain Python;
- ``SKIP``: the hook never calls the callback of this owner for this code again. The code runs in plain
  Python; calls inside it are still hooked;
- ``RUN``: this frame runs in plain Python. The hook calls the callback again next time. Calls inside the
  frame are still hooked.

An exception of the callback becomes an exception of the frame.

**Entries**::

    Entry(owner, tree: Tree | None, code: CodeType, takes_inputs=False)
                              # .owner .tree .code .installed .hits (settable)
    install(code, entry)      # code: the original code object; tree None: no guards
    remove(code, entry)
    Entry.region                     # None, or a str: the name of its runs in a profile of torch.profiler
    entries(code, owner=None) -> list[Entry]   # in the order in which the hook tries them
    skip(code, owner=None)                     # like the answer SKIP; owner None: for all owners
    is_skipped(code, owner=None) -> bool
    usage(code, owner) -> (uses, lost)         # uses: calls that found an entry. lost: entries that were removed
                                               # because an object was freed
    reset(code, owner=None)                    # remove entries and skips
    Owner().clear()                            # remove all entries and skips of this owner

The hook tries the most recently hit entry first. ``Entry.code`` must take the same arguments as the original
code, and have the same free variables in the same order. ``install`` checks this, and its ValueError names
the difference. The globals of ``Entry.code`` are the globals of the original function. With ``takes_inputs``,
the tree collects a tuple of values. The first local variable of ``code`` after the arguments has this tuple
when the frame starts. Only its owner holds an entry. The entry is removed when ``remove`` or ``reset`` is
called. It is also removed when one of these objects is freed: the owner, the original code object, or an
object to which one of its guards refers weakly. One tree belongs to one entry.

**Continuations**::

    use_debugging(function)   # set function(trace function or None) -> bool: whether frames run in plain Python
    use_profiler(namespace)   # set the dict whose _is_profiler_enabled says whether a profiler is on
    use_continuation(type)    # set the type of continuations, a subclass of tuple, for the process
    hide_file(name)           # set the co_filename of code whose frames no traceback shows

A replacement may return a continuation ``type((function, arguments))``. After the frame of the replacement is
gone, the hook calls ``function(*arguments)``. If this returns a continuation, the hook calls that as well,
until a call returns another value. ``function`` is a Python function. Its frame takes the place of the first
frame in tracebacks and on the stack.

**Finalizers**::

    mark_finalized(obj) -> bool   # obj.__del__ will never run; False: the hook cannot prevent it

**Iterators**::

    upcoming(iterator, k)         # the item after k others (list, tuple, range, dict iterators); IndexError

**Caches**::

    cached(wrapper, key)          # the result that a functools.lru_cache holds for a key of its dictionary,
                                  # or NOT_CACHED; does not count as a hit
    use_caches(...) -> bool       # find the memory layout of lru_cache wrappers, for the process; see
                                  # objects.cache_keys

**Formulas**::

    formula(program)              # a builtin function of one number, which runs the steps of ``program``: None
                                  # (the number), (constant,), and (function, positions of earlier steps)

**Readers**, which guards and ``calls`` use::

    use_tensors(TensorBase, dispatch_keys, DisableTorchFunction, capsule=None)  # see guards.tensor_reading
    storage_key(tensor) -> int    # the identity of the storage that guards compare; 0 without a storage
    use_literals(types)           # guards hold the objects of these types as constants
    scan(codes, lazy, opaque, values, found, every, keys_only, classify)        # see calls.scan

**For tests and benchmarks**::

    stats() -> dict               # shadow_calls: entries that ran as a call; active: calls that hold a mode
    time_check(tree, func, arguments, n) -> float   # nanoseconds of one check, measured over n checks

**Intercept mode** is also a state of a thread. It is on while the call runs::

    intercept(callback, fn, args=(), kwargs=None, passthrough=None)

calls ``fn(*args, **kwargs)`` for real. A Python frame that starts in this thread during the call is not
executed. Instead, the hook calls ``callback(func, args: tuple, kwargs: dict)`` with all modes off. The result
(or exception) of the callback is the result of the frame. This includes lambdas and *calls of* generator
functions, coroutine functions and async generator functions; the callback returns the generator-like object.

Some frames are executed for real with intercept mode on: class bodies and module code, code marked with
``never_intercept(code)``, and resumptions of real generators. Frames whose file name starts with a prefix of
``passthrough = Passthrough(("/x/torch/_ops", ...), excepted=(code, ...))`` are executed for real with every
mode off until they return. ``excepted`` lists code in these files that is intercepted nevertheless. Make one
``Passthrough`` and keep it, because its decisions are cached for each code object.

**Limits of the technique.** While a mode is on in any thread, CPython does not inline Python-to-Python calls.
A caller then keeps the arguments of a running call alive until the call returns. Greenlets must not switch
inside a call that turns a mode on.

**Guards**: ``guards.tree`` makes a ``Tree`` and documents it. ``Tree.failing(func, arguments)`` returns the
index of a guard that fails, or -1. ``Tree.meta`` is an object that the maker of the tree has attached.
``Tree.dead`` is true if an object to which the tree refers weakly has been freed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


class NativeMissingError(RuntimeError):
    """The C extension is required but not installed."""


try:
    from fxstack_capture import _native
except ImportError as error:
    WHY_MISSING: str | None = (
        f"fxstack-capture's C extension is not installed ({error}). Install a C compiler "
        "(gcc or clang) and reinstall the package: pip install --force-reinstall --no-deps fxstack-capture"
    )
else:
    WHY_MISSING = None

AVAILABLE: bool = WHY_MISSING is None


def _missing(*_args: object, **_kwargs: object) -> NoReturn:
    raise NativeMissingError(WHY_MISSING)


def _function(name: str) -> Callable[..., Any]:
    """Return the native function ``name``. If the extension is missing, return a function that raises
    ``NativeMissingError``.
    """
    if not AVAILABLE:
        return _missing
    found: Callable[..., Any] | None = getattr(_native, name, None)
    if found is None:
        raise ImportError(
            f"fxstack-capture's C extension {_native.__file__} is older than its Python files (it has no"
            f" {name}). Build it again: pip install --force-reinstall --no-deps fxstack-capture, or in a"
            " checkout: cd packages/capture && python setup.py build_ext --inplace"
        )
    return found


def _class(name: str) -> Any:
    """Return the native class ``name``. If the extension is missing, return a class that can only be
    subclassed.
    """
    return getattr(_native, name) if AVAILABLE else type(name, (), {"__new__": _missing})


class _Answer(str):
    """SKIP, RUN or NOT_CACHED without the extension."""

    __slots__ = ()


SKIP: Any = _native.SKIP if AVAILABLE else _Answer("SKIP")
RUN: Any = _native.RUN if AVAILABLE else _Answer("RUN")
NOT_CACHED: Any = _native.NOT_CACHED if AVAILABLE else _Answer("NOT_CACHED")

Owner = _class("Owner")
Entry = _class("Entry")
Tree = _class("Tree")
Optimized = _class("Optimized")
Disabled = _class("Disabled")
Watched = _class("Watched")
Passthrough = _class("Passthrough")

run_with = _function("run_with")
intercept = _function("intercept")
mode = _function("mode")
stats = _function("stats")
install = _function("install")
remove = _function("remove")
entries = _function("entries")
skip = _function("skip")
is_skipped = _function("is_skipped")
usage = _function("usage")
reset = _function("reset")
never_intercept = _function("never_intercept")
mark_finalized = _function("mark_finalized")
upcoming = _function("upcoming")
cached = _function("cached")
use_caches = _function("use_caches")
scan = _function("scan")
use_tensors = _function("use_tensors")
use_literals = _function("use_literals")
use_continuation = _function("use_continuation")
use_debugging = _function("use_debugging")
use_profiler = _function("use_profiler")
hide_file = _function("hide_file")
bypass = _function("bypass")
redirect = _function("redirect")
use_redirect = _function("use_redirect")
hooks = _function("hooks")
use_hooks = _function("use_hooks")
formula = _function("formula")
storage_key = _function("storage_key")
time_check = _function("time_check")
