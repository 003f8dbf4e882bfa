"""A compiled callable whose first call made no graph says why, once, at the line that called it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Protocol

import torch

from fxstack_capture.driver.frame_policy import builtins_in_use, debugging
from fxstack_capture.driver.frame_policy.policy import is_traced_by_others
from fxstack_capture.driver.reports.records import Tally
from fxstack_capture.options import CaptureOptions
from fxstack_capture.stance import Stance, current_stance
from fxstack_interchange.user_warnings import warn_user

_COMPILED, _WATCHED = 0, 3  # answers of ``begin``; see ``native``
_MOST = 5


class Uncompiled(UserWarning):
    """The first call of a compiled callable made no graph: it ran in plain Python."""


@dataclass(slots=True)
class Reasons:
    """Why frames ran in plain Python; only the first ones are kept."""

    texts: list[str] = field(default_factory=list)
    postponed: bool = False
    """Whether a later call is to be compiled."""

    def add(self, code: CodeType, why: str) -> None:
        """Keep a reason. This method calls no builtin, because the program may have replaced it."""
        text = f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno}): {why}"
        if text not in self.texts:
            self.texts.append(text)
            del self.texts[_MOST:]


class Reported(Protocol):
    """What the report uses of the compiler of a callable."""

    @property
    def tally(self) -> Tally: ...

    @property
    def reasons(self) -> Reasons: ...

    @property
    def options(self) -> CaptureOptions: ...

    @property
    def has_warned(self) -> bool: ...


@dataclass(slots=True)
class FirstCall:
    """Watches a callable until a call has returned: ``Optimized.trial`` of ``native``."""

    compiler: Reported
    callable: Any
    """The function or module that was given to ``optimize``."""
    then: Any = None
    """What watches the calls that follow."""

    def begin(self, _optimized: Any) -> int:
        """Say how the next call runs: compiled, and watched if it is to be compiled."""
        options = self.compiler.options
        if options.disable or current_stance() != Stance() or is_traced_by_others() or debugging.is_on():
            return _COMPILED
        return _WATCHED

    def end(self, optimized: Any, _plain: bool, _nanoseconds: int, _result: object) -> None:
        """Report a call that made no graph, and watch no more calls."""
        if builtins_in_use.are_replaced():  # the report would call what the program has put there
            return
        found = self.compiler.reasons
        if found.postponed:
            found.postponed = False
            found.texts.clear()
            return
        optimized.trial = self.then
        if self.compiler.tally.graphs or self.compiler.has_warned:
            return
        reasons = found.texts or ["the call ran no function of Python that can be compiled"]
        listed = "".join(f"\n  {text}" for text in reasons)
        warn_user(
            f"the call of the compiled {name_of(self.callable)} made no graph: it ran in plain Python.\n"
            f"why:{listed}\n"
            "fix: remove the cause, or compile the part of the program that calls torch.",
            Uncompiled,
        )


def name_of(fn: Any) -> str:
    """Return the name of a callable for messages: of a module its class."""
    if isinstance(fn, torch.nn.Module):
        return f"module {type(fn).__qualname__}"
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        return f"{type(owner).__qualname__}.{fn.__name__}"
    return str(getattr(fn, "__qualname__", None) or type(fn).__qualname__)
