"""Stances, which control when compiled functions compile, and temporary options.

``set_stance`` and ``patch_options`` affect one thread, and can be nested. Both are read when a frame is
compiled or a compiled function is called. Neither is read while a graph runs.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Self, TypeVar, cast

from fxstack_capture import native
from fxstack_capture.options import CaptureOptions

F = TypeVar("F", bound=Callable[..., Any])

# Limits: skip_guard_eval_unsafe still evaluates guards. A call that needs a guard which torch would skip
# raises an error; torch may return a wrong result. aot_eager_then_compile is the same as eager_then_compile.

STANCES: Final = (
    *("default", "force_eager", "eager_on_recompile", "fail_on_recompile"),
    "eager_then_compile",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Stance:
    """The behaviour of compiled functions. ``set_stance`` documents the names."""

    name: str = "default"
    """One of ``STANCES``."""
    backend: Any = None
    """The backend that replaces the functions' own backends: a name or a callable. None if no backend
    replaces them.
    """
    is_warm: bool = False
    """Whether ``skip_guard_eval_unsafe`` was given: no further compilation is necessary."""

    @property
    def forbids_compiling(self) -> str:
        """The phrase for the stance in the error message. "" if the stance allows compiling."""
        if self.name == "fail_on_recompile":
            return "the stance 'fail_on_recompile'"
        return "a stance with skip_guard_eval_unsafe" if self.is_warm else ""


_DEFAULT: Final = Stance()


class _State(threading.local):
    """The stance and the changed options of one thread."""

    stance: Stance = _DEFAULT
    """The stance that this thread has set, or the default."""
    changes: tuple[tuple[str, Any], ...] = ()
    """The names and values of the changed options."""


_STATE: Final = _State()


def current_stance() -> Stance:
    """Return the stance of this thread. The compiler asks before each compilation.

    If the thread has set none, return the stance that ``torch.compiler.set_stance`` has set for all threads.
    """
    return _torch_stance() if _STATE.stance == _DEFAULT else _STATE.stance


def _torch_stance() -> Stance:
    """Return the stance that torch has set.

    ``force_eager`` is not read here, because ``native.Optimized`` reads it in each call.
    """
    stance = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)
    if stance is None:
        return _DEFAULT
    name = stance.stance.removeprefix("aot_")
    is_warm = bool(getattr(stance, "skip_guard_eval_unsafe", False))
    return Stance(name if name in STANCES else "default", getattr(stance, "backend", None), is_warm)


def with_changes(options: CaptureOptions) -> CaptureOptions:
    """Return ``options`` with the changes of this thread's ``patch_options`` blocks."""
    return dataclasses.replace(options, **dict(_STATE.changes)) if _STATE.changes else options


class _Scope:
    """A change of the state that is already in effect. ``set_stance`` and ``patch_options`` return it.

    As a context manager, the change ends with the ``with`` block. As a decorator, it ends at once, and
    ``set_again`` makes the same change in each call.
    """

    def __init__(
        self, before: tuple[Stance, tuple[tuple[str, Any], ...]], set_again: Callable[[], _Scope]
    ) -> None:
        self._before = before
        self._after = (_STATE.stance, _STATE.changes)
        self._set_again = set_again

    def __enter__(self) -> Self:
        _enter(*self._after)
        return self

    def __exit__(self, *_: object) -> None:
        _enter(*self._before)

    def __call__(self, fn: F) -> F:
        """Decorator: the change is in effect only while ``fn`` runs."""
        _enter(*self._before)

        @functools.wraps(fn)
        def scoped(*args: Any, **kwargs: Any) -> Any:
            with self._set_again():
                return fn(*args, **kwargs)

        return cast("F", scoped)


def _enter(stance: Stance, changes: tuple[tuple[str, Any], ...]) -> None:
    """Set the stance and the changed options of this thread. Pass the stance to the native code."""
    _STATE.stance, _STATE.changes = stance, changes
    if not native.AVAILABLE:
        return
    if stance.backend is None:
        native.bypass(stance.name == "force_eager")
    else:
        native.redirect()


def set_stance(
    stance: str = "default",
    *,
    skip_guard_eval_unsafe: bool = False,
    force_backend: str | Callable[..., Any] | None = None,
) -> _Scope:
    """Set the behaviour of compiled functions in this thread. Also a context manager and a decorator.

    - ``default``: compile new code. With ``force_backend``, compile by that backend while the stance is in
      effect. The entries of each backend are kept separately.
    - ``force_eager``: run everything in plain Python.
    - ``eager_on_recompile``: use existing entries, and run everything else in plain Python.
    - ``fail_on_recompile``: use existing entries, and raise ``RecompileError`` for everything else.
    - ``eager_then_compile``: run the first call of each function in plain Python, and compile the next call.
      Sizes that differ between the two calls are symbolic from the start.

    ``skip_guard_eval_unsafe`` declares that all necessary entries exist. Guards are still evaluated, because
    they are cheap. A call that no entry fits raises ``RecompileError``, as torch does if the guards that
    distinguish the entries fail.

    Raises:
        ValueError: unknown stance.
        RuntimeError: ``force_backend`` with another stance than the default.
    """
    if stance not in STANCES:
        raise ValueError(f"set_stance: unknown stance {stance!r}; choose one of {', '.join(STANCES)}")
    if force_backend is not None and stance != "default":
        raise RuntimeError(f"set_stance: force_backend requires the stance 'default', not {stance!r}")
    before = (_STATE.stance, _STATE.changes)
    chosen = Stance(stance, force_backend, skip_guard_eval_unsafe)
    _enter(chosen, _STATE.changes)
    return _Scope(before, lambda: _set(chosen))


def _set(stance: Stance) -> _Scope:
    """Set a stance again. Called in each call of a decorated function."""
    return set_stance(stance.name, skip_guard_eval_unsafe=stance.is_warm, force_backend=stance.backend)


def patch_options(**changes: Any) -> _Scope:
    """Compile with other options while a ``with`` block or a decorated function runs.

    Raises:
        TypeError: an option does not exist.
    """
    known = {field.name for field in dataclasses.fields(CaptureOptions)}
    unknown = sorted(changes.keys() - known)
    if unknown:
        raise TypeError(f"patch_options: unknown {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    before = (_STATE.stance, _STATE.changes)
    _enter(_STATE.stance, tuple({**dict(_STATE.changes), **changes}.items()))
    return _Scope(before, lambda: patch_options(**changes))


def run(fn: F) -> F:
    """Return ``fn``, compiled with existing entries only. A call that no entry fits runs in plain Python."""

    @functools.wraps(fn)
    def running(*args: Any, **kwargs: Any) -> Any:
        with set_stance("eager_on_recompile"):
            return fn(*args, **kwargs)

    return cast("F", running)
