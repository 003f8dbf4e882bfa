"""Report why a frame is compiled again.

The failed guard of each entry is reported as data, in the log, and in an error.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any, Final, NamedTuple

from fxstack_capture import native
from fxstack_capture.driver.contracts import renamed_arguments
from fxstack_capture.driver.errors import RecompileError, RecompileLimitError, TracingWarning
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.guards.explain import GuardFailure, first_failure
from fxstack_capture.guards.records import TorchStateIs
from fxstack_capture.guards.torch_state import TorchState, difference, snapshot
from fxstack_capture.options import CaptureOptions
from fxstack_interchange.user_warnings import warn_user

LOG: Final = logging.getLogger("fxstack_capture.recompiles")
"""The logger. It gets one record (level INFO) for each compilation of a function that was compiled before."""


@dataclass(frozen=True, slots=True)
class Recompilation:
    """A function whose frame no entry accepts. ``failures`` has one failed guard for each entry."""

    name: str
    """The qualified name of the function."""
    file: str
    """Its file."""
    line: int
    """Its first line."""
    failures: tuple[GuardFailure, ...]
    """The failed guards, one for each entry. Empty if the function has no entry yet."""
    same_state: int = 0
    """Number of entries whose recorded torch state (grad mode, autocast) equals the current state."""

    @property
    def message(self) -> str:
        """The message: the function, and for each entry the failed guard, its old and new value, and the
        user's line.
        """
        reasons = "\n".join(f"  {failure.message}" for failure in self.failures)
        return f"recompiling {self.name} ({self.file}:{self.line}) because\n{reasons}"


class GuardFail(NamedTuple):
    """The argument of the option ``guard_fail_fn``. It has the fields of torch's argument."""

    reason: str
    """The message of the failed guard."""
    orig_code: CodeType
    """The code of the frame, before its replacement."""


def notify(observer: object, event: str, *facts: object) -> None:
    """Call the method ``event`` of the observer if it has this method. Most methods of observers are
    optional.
    """
    if (method := getattr(observer, event, None)) is not None:
        method(*facts)


def announce(recompilation: Recompilation, code: CodeType, options: CaptureOptions, observer: object) -> None:
    """Report that ``code`` is compiled again, and the reasons. ``FrameCompiler`` calls this before it traces.

    Raises RecompileError if the option ``error_on_recompile`` is set.
    """
    LOG.info("%s", recompilation.message)
    notify(observer, "on_recompile", recompilation)
    if options.guard_fail_fn is not None:
        for failure in recompilation.failures:
            options.guard_fail_fn(GuardFail(failure.message, code))
    if options.error_on_recompile:
        raise RecompileError(recompilation.message)


def refusal(recompilation: Recompilation, stance: str) -> RecompileError:
    """Return the error for a call that needs a compilation under a stance that forbids compiling.

    ``stance`` is the phrase for the message (``Stance.forbids_compiling``).
    """
    reasons = "\n".join(f"  {failure.message}" for failure in recompilation.failures)
    return RecompileError(
        f"{recompilation.name} ({recompilation.file}:{recompilation.line}) would have to be compiled under {stance}:\n"
        f"{reasons or '  it has not been compiled yet'}\n"
        "fix: make its arguments more uniform, compile it before, or call set_stance('default')."
    )


def fitting_entry(
    frame: RealFrame, named: CodeType, code: CodeType, owner: object
) -> tuple[Any, Recompilation]:
    """Return an entry whose guards hold for ``frame`` (or None), and a record of why the other entries do not
    fit.

    ``named`` is the function that messages name. The hook has found no such entry. One can still exist, if
    another thread has compiled it since then.
    """
    failures: list[GuardFailure] = []
    fitting: Any = None
    same_state, now = 0, snapshot()
    renamed = renamed_arguments(frame, code) if named is not code else {}
    for entry in native.entries(code, owner):
        if entry.tree is None:
            continue
        failure = first_failure(entry.tree, frame.function, frame.arguments)
        if failure is None:
            fitting = fitting or entry
        else:
            failures.append(replace(failure, renamed=renamed))
            same_state += _has_state(entry.tree, now)
    where = named.co_qualname, named.co_filename, named.co_firstlineno
    return fitting, Recompilation(*where, tuple(failures), same_state)


def _has_state(tree: Any, now: TorchState) -> bool:
    """Whether an entry accepts the torch state ``now``. An entry without a condition on the state accepts
    any.
    """
    checks = [guard.check for guard in tree.meta]
    states = [check.state for check in checks if isinstance(check, TorchStateIs)]
    return not any(isinstance(s, TorchState) and difference(s, now) for s in states)


_WORTHWHILE_USES = 100
"""An entry that is used this many times has been worth its compilation."""


def exceeded_limit(
    recompilation: Recompilation, compiled: int, usage: tuple[int, int], options: CaptureOptions
) -> str | None:
    """Return the limit that forbids another compilation, or None.

    The result is a phrase such as "was compiled 8 times (recompile_limit)". ``compiled`` is the number of
    compilations of the code. ``usage`` is the result of ``EqualCodes.usage``.
    """
    # Lost entries count unless entries were used often enough. Otherwise, a function that gets new objects in
    # each call, or is made anew in each call, would compile in each call.
    if recompilation.same_state >= options.recompile_limit:
        return f"was compiled {recompilation.same_state} times (recompile_limit)"
    if compiled >= options.accumulated_recompile_limit:
        return f"was compiled {compiled} times (accumulated_recompile_limit)"
    uses, lost = usage
    if lost - uses // _WORTHWHILE_USES < options.recompile_limit or options.fullgraph:
        return None
    return f"was compiled {lost} times (recompile_limit) for objects or functions that each call makes anew,"


def limit_reached(recompilation: Recompilation, exceeded: str, *, raises: bool) -> str:
    """Warn that a function is not compiled any more, or raise RecompileLimitError if ``raises``.

    ``exceeded`` is the result of ``exceeded_limit``. Return the text of the warning, for the record of the
    frame.
    """
    text = f"{recompilation.name} ({recompilation.file}:{recompilation.line}) {exceeded}"
    reasons = "".join(f"\n  {failure.message}" for failure in recompilation.failures)
    why = f"\nwhy: no entry fits this call:{reasons}" if reasons else ""
    if raises:
        raise RecompileLimitError(f"{text}; raise the limit or pass dynamic=True.{why}")
    warn_user(
        f"{text} and runs in plain Python from now on for new kinds of arguments; "
        f"pass dynamic=True or make its arguments more uniform.{why}",
        TracingWarning,
    )
    return text
