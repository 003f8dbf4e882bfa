"""The frame hook and the guard engine: typed doors to the C extension ``fxstack_capture._native``.

Importing this module never fails. Without the extension ``AVAILABLE`` is False, ``WHY_MISSING`` says
why and what to install, and everything below raises ``NativeMissingError`` when called (``SKIP`` and
``RUN`` exist always).

**Compile mode** (per thread, on only while one of these calls runs)::

    run_with(callback, owner, fn, args=(), kwargs=None)   # fn(*args, **kwargs) with compile mode on
    Optimized(fn, callback, owner)   # a callable that does the same; binds as a method, has a
                                     # __dict__ (functools.update_wrapper works) and weak references
    Optimized.trial                  # None, or what has begin(optimized) -> 0 (compiled), 1 (compiled, timed) or 2
                                     # (plain, timed), and, for timed calls that raise nothing,
                                     # end(optimized, plain, nanoseconds, result)
    Optimized.plain_calls            # how many calls run plainly before the trial is asked
    Disabled(fn)                     # a callable that runs fn with every mode off
    Watched(fn, told)                # a callable that runs fn, and calls told() if it raises nothing
    bypass(on) -> bool               # Optimized callables of this thread run plainly; gives what was
    use_redirect(function)           # function(optimized, *args, **kwargs) makes redirected calls, once and for all
    redirect()                       # Optimized callables of this thread are redirected, until bypass(...)
    mode() -> "off" | "compile" | "intercept"   # of this thread, now

``owner`` is an instance of ``Owner`` (subclass it as you like); entries belong to one owner and die
with it. For a fresh frame of a function (not generators, coroutines, class bodies, modules) whose
entries for this owner all miss, the hook calls, with all modes off and tracing (sys.settrace,
sys.setprofile) suspended::

    callback(func: FunctionType, code: CodeType, locals: dict[str, object], cells: tuple[CellType, ...])

``locals`` holds the arguments as the frame sees them (``*args`` as one tuple, ``**kwargs`` as one
dict), ``cells`` is the closure. It returns

- an ``Entry``: it is installed for ``code`` (unless it already is), its guards are checked, and the
  frame runs it (should its guards reject the very frame it was made for, the frame runs plainly);
- ``SKIP``: this code is never offered to this owner again and runs plainly (calls inside of it are
  still hooked);
- ``RUN``: this frame runs plainly, ask again next time (calls inside of it are still hooked).

What the callback raises, the frame raises.

**Entries**::

    Entry(owner, tree: Tree | None, code: CodeType, takes_inputs=False)
                              # .owner .tree .code .installed .hits (settable)
    install(code, entry)      # code: the original code object; tree None: no guards
    remove(code, entry)
    entries(code, owner=None) -> list[Entry]   # in the order in which they are tried
    skip(code, owner=None)                     # as the answer SKIP; owner None: for everybody
    is_skipped(code, owner=None) -> bool
    reset(code, owner=None)                    # forget entries and skips
    Owner().clear()                            # forget everything of this owner

The most recently hit entry is tried first. ``Entry.code`` must take the same arguments and have the
same free variables in the same order as the original (``install`` checks; its ValueError says what
differs); its globals are the original function's. With ``takes_inputs`` the first local
variable of ``code`` behind the arguments holds, when the frame starts, the tuple of values that the tree was
told to collect. An entry is held by its owner alone: it goes when
the owner goes, when the original code object goes, when ``remove`` or ``reset`` says so, or when an
object goes that one of its guards refers to weakly. One tree belongs to one entry.

**Going on elsewhere**::

    use_continuation(type)    # a subclass of tuple, once and for all
    hide_file(name)           # the co_filename of code whose frames no traceback shows

A replacement may return a continuation ``type((function, arguments))``: when its frame is gone, the hook
calls ``function(*arguments)`` in its place, and so on until something else is returned. ``function`` is
a Python function; its frame takes the place of the first one in tracebacks and on the stack.

**Finalizers**::

    mark_finalized(obj) -> bool   # its __del__ will never run; False: it cannot be kept from running

**Iterators**::

    upcoming(iterator, k)         # what an iterator of a list, tuple, range or dict gives after k more; IndexError

**Caches**::

    cached(wrapper, key)          # what a functools.lru_cache holds for a key of its dictionary, or NOT_CACHED; counts no hit
    use_caches(...) -> bool       # how such wrappers lie in memory, once and for all; see world.caches

**Intercept mode** (per thread, while the call runs)::

    intercept(callback, fn, args=(), kwargs=None, passthrough=None)

calls ``fn(*args, **kwargs)`` for real; every Python frame that starts meanwhile in this thread is not
executed: ``callback(func, args: tuple, kwargs: dict)`` is called in its place, with all modes off, and
its result (or exception) is the call's. This includes lambdas and *calls of* generator functions,
coroutine functions and async generator functions (the callback returns the generator-like object).
Executed for real with intercept mode staying on: class bodies and module code, code marked with
``never_intercept(code)``, resumptions of real generators. Executed for real with every mode off until
they return: frames whose file name starts with one of the prefixes of
``passthrough = Passthrough(("/x/torch/_ops", ...), excepted=(code, ...))`` (make one and keep it: the decision is cached per
code object); ``excepted`` is intercepted all the same.

**Limits of the technique.** While a mode is on in any thread, CPython does not inline Python-to-Python
calls: a caller then keeps the arguments of a running call alive until it returns. Greenlets must not
switch inside of a call that turns a mode on.

**Guards**: see ``guards.tree``; ``Tree`` is made there. ``Tree.failing(func, arguments)`` is -1, or the
index of a guard that does not hold; ``Tree.meta`` what its maker attached; ``Tree.dead`` whether
something that it refers to weakly is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn


class NativeMissingError(RuntimeError):
    """The C extension is needed and not there."""


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
    """The native class, or one that can be subclassed but not instantiated."""
    return getattr(_native, name) if AVAILABLE else type(name, (), {"__new__": _missing})


class _Answer(str):
    """SKIP or RUN where there is no extension."""

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
hide_file = _function("hide_file")
bypass = _function("bypass")
redirect = _function("redirect")
use_redirect = _function("use_redirect")
storage_key = _function("storage_key")
time_check = _function("time_check")
