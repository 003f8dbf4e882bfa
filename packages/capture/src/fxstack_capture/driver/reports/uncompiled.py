"""If the first call of a compiled callable makes no graph, a warning gives the reason, once, at the caller's
line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fxstack_capture.driver.compiler import FrameCompiler
from fxstack_capture.driver.frame_policy import builtins_in_use, debugging
from fxstack_capture.driver.frame_policy.policy import is_traced_by_others
from fxstack_capture.stance import Stance, current_stance
from fxstack_interchange.user_warnings import warn_user

_COMPILED, _WATCHED = 0, 3  # the results of ``begin`` (see ``native``)


class Uncompiled(UserWarning):
    """The first call of a compiled callable made no graph, so it ran in plain Python."""


@dataclass(slots=True)
class FirstCall:
    """Watches a callable until one of its calls has returned.

    ``native.Optimized`` calls ``begin`` before and ``end`` after each call, as it does for
    ``profitability.Trial``.
    """

    compiler: FrameCompiler
    """The compiler of the callable. It counts the graphs."""
    callable: Any
    """The function or module that was given to ``optimize``."""
    then: Any = None
    """The next value of ``Optimized.trial``: the timing of later calls, or None."""

    def begin(self, _optimized: Any) -> int:
        """Return the mode of the next call. It is compiled and watched, unless compilation is off."""
        options = self.compiler.options
        if options.disable or current_stance() != Stance() or is_traced_by_others() or debugging.is_on():
            return _COMPILED
        return _WATCHED

    def end(self, optimized: Any, _plain: bool, _nanoseconds: int, _result: object) -> None:
        """Warn if the call made no graph. Then stop watching, unless compilation was deferred to a later
        call.
        """
        # the warning would call the functions that the program has put in their place
        if builtins_in_use.are_replaced():
            return
        reasons = self.compiler.reasons
        if reasons.is_deferred:
            reasons.is_deferred = False
            reasons.texts.clear()
            return
        optimized.trial = self.then
        if self.compiler.tally.graphs or self.compiler.mistakes.said:
            return
        texts = reasons.texts or ["the call ran no function of Python that can be compiled"]
        listed = "".join(f"\n  {text}" for text in texts)
        warn_user(
            f"the call of the compiled {name_of(self.callable)} made no graph: it ran in plain Python.\n"
            f"why:{listed}\n"
            "fix: remove the cause, or compile the part of the program that calls torch.",
            Uncompiled,
        )


def name_of(fn: Any) -> str:
    """Return the name of a callable for messages, for example "module Linear" or "Linear.forward"."""
    if isinstance(fn, torch.nn.Module):
        return f"module {type(fn).__qualname__}"
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, torch.nn.Module):
        return f"{type(owner).__qualname__}.{fn.__name__}"
    return str(getattr(fn, "__qualname__", None) or type(fn).__qualname__)
