"""What compiled functions do meanwhile: compile as needed, never, only what is compiled already; and options to try.

``set_stance`` and ``patch_options`` are for one thread and can be nested. Both are read when a frame is compiled or
a compiled function is called, never while a graph runs.
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

# Limits: under skip_guard_eval_unsafe guards are evaluated. A call that needs a guard which torch would skip
# raises an error, instead of a result that may be wrong. aot_eager_then_compile is eager_then_compile.

STANCES: Final = (
    *("default", "force_eager", "eager_on_recompile", "fail_on_recompile"),
    "eager_then_compile",
)


@dataclasses.dataclass(frozen=True, slots=True)
class Stance:
    """What compiled functions do; the words are those of ``set_stance``."""

    name: str = "default"
    backend: Any = None
    """The one that is used instead of their own."""
    is_warm: bool = False
    """``skip_guard_eval_unsafe``: nothing more will have to be compiled."""

    @property
    def forbids_compiling(self) -> str:
        """What to call the stance in the error; "" where it is none to compile."""
        if self.name == "fail_on_recompile":
            return "the stance 'fail_on_recompile'"
        return "a stance with skip_guard_eval_unsafe" if self.is_warm else ""


_DEFAULT: Final = Stance()


class _State(threading.local):
    stance: Stance = _DEFAULT
    changes: tuple[tuple[str, Any], ...] = ()


_STATE: Final = _State()


def current_stance() -> Stance:
    """The stance of this thread; where none was set, the one that ``torch.compiler.set_stance`` has set for all."""
    return _told_torch() if _STATE.stance == _DEFAULT else _STATE.stance


def _told_torch() -> Stance:
    """``force_eager`` is not asked for here: ``native.Optimized`` looks itself, at every call."""
    told = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)
    if told is None:
        return _DEFAULT
    name = told.stance.removeprefix("aot_")
    is_warm = bool(getattr(told, "skip_guard_eval_unsafe", False))
    return Stance(name if name in STANCES else "default", getattr(told, "backend", None), is_warm)


def with_changes(options: CaptureOptions) -> CaptureOptions:
    """``options`` with what ``patch_options`` blocks of this thread say."""
    return dataclasses.replace(options, **dict(_STATE.changes)) if _STATE.changes else options


class _Scope:
    """A change of the state that has happened already, and ends with a ``with`` block (or call) if it has one."""

    def __init__(self, before: tuple[Stance, tuple[tuple[str, Any], ...]], undo: Any) -> None:
        self._before = before
        self._after = (_STATE.stance, _STATE.changes)
        self._undo = undo

    def __enter__(self) -> Self:
        _enter(*self._after)
        return self

    def __exit__(self, *_: object) -> None:
        _enter(*self._before)

    def __call__(self, fn: F) -> F:
        """Decorator: the state while ``fn`` runs."""
        _enter(*self._before)
        again = self._undo

        @functools.wraps(fn)
        def scoped(*args: Any, **kwargs: Any) -> Any:
            with again():
                return fn(*args, **kwargs)

        return cast("F", scoped)


def _enter(stance: Stance, changes: tuple[tuple[str, Any], ...]) -> None:
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
    """Say what compiled functions do from now on in this thread; also a context manager and a decorator.

    - ``default``: compile what is new; with ``force_backend`` by that one, for as long as the stance is in force. What
      each backend has compiled is kept apart.
    - ``force_eager``: run everything in plain Python.
    - ``eager_on_recompile``: use what is compiled, run everything else in plain Python.
    - ``fail_on_recompile``: use what is compiled; raise ``RecompileError`` for anything else.
    - ``eager_then_compile``: run the first call of each function in plain Python, and compile the next with what both show of
      sizes: those that differ are symbolic at once.

    ``skip_guard_eval_unsafe`` says that everything was compiled that will be needed. Guards are evaluated nevertheless: they
    are cheap, and a call that nothing fits raises ``RecompileError``, as torch does where those guards fail by which its
    entries differ.

    Raises:
        ValueError: an unknown stance.
        RuntimeError: ``force_backend`` with another stance than the default.
    """
    if stance not in STANCES:
        raise ValueError(f"set_stance: unknown stance {stance!r}; choose one of {', '.join(STANCES)}")
    if force_backend is not None and stance != "default":
        raise RuntimeError(f"set_stance: force_backend is for the stance 'default', not for {stance!r}")
    before = (_STATE.stance, _STATE.changes)
    chosen = Stance(stance, force_backend, skip_guard_eval_unsafe)
    _enter(chosen, _STATE.changes)
    return _Scope(before, lambda: _set(chosen))


def _set(stance: Stance) -> _Scope:
    return set_stance(stance.name, skip_guard_eval_unsafe=stance.is_warm, force_backend=stance.backend)


def patch_options(**changes: Any) -> _Scope:
    """Compile with other options while a ``with`` block or a decorated function runs.

    Raises:
        TypeError: there is no such option.
    """
    known = {field.name for field in dataclasses.fields(CaptureOptions)}
    unknown = sorted(changes.keys() - known)
    if unknown:
        raise TypeError(f"patch_options: unknown {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    before = (_STATE.stance, _STATE.changes)
    _enter(_STATE.stance, tuple({**dict(_STATE.changes), **changes}.items()))
    return _Scope(before, lambda: patch_options(**changes))


def run(fn: F) -> F:
    """``fn`` with what is compiled already; whatever is not runs in plain Python."""

    @functools.wraps(fn)
    def running(*args: Any, **kwargs: Any) -> Any:
        with set_stance("eager_on_recompile"):
            return fn(*args, **kwargs)

    return cast("F", running)
