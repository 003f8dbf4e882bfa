"""The replacement code of a frame: the draft from the trace, and the passes that complete it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from types import CodeType
from typing import Any, Final

import torch

from fxstack_capture.breaks import BreakRecord
from fxstack_capture.driver.reports.convert_frame import through_hooks
from fxstack_capture.driver.reports.records import shown
from fxstack_capture.driver.reports.signature import signature_of
from fxstack_capture.emit.frame import Draft, Emitted, computes_numbers_only
from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.guards.explain import GuardFailure, first_failure, guard_text
from fxstack_capture.guards.filtering import apply_filter
from fxstack_capture.guards.records import Guard
from fxstack_capture.guards.tree import compile_guards
from fxstack_capture.options import CaptureOptions
from fxstack_capture.torch_side.subclasses.suspended_modes import put_back
from fxstack_capture.trace.records import CapturedCode
from fxstack_interchange import show
from fxstack_interchange.passes import NothingToDo, Pass, run_passes


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a successful trace of a frame: the draft of the replacement code, and the guards."""

    draft: Draft | None
    """The draft, or None if the trace ended with an exception of the program."""
    guards: tuple[Guard, ...]
    """The guards that the trace has recorded, in order."""
    graph_break: BreakRecord | None = None
    """The graph break at the end of the graph, or None. A resume function continues the frame after it."""
    raised: BaseException | None = None
    """The exception of the program that ended the trace, or None."""

    @property
    def error(self) -> str:
        """The exception that ended the trace, as text. "" if the frame returned."""
        return "" if self.raised is None else shown(self.raised)

    @property
    def captured(self) -> CapturedCode | None:
        """The captured graph, or None if there is none."""
        return None if self.draft is None else self.draft.captured

    @property
    def text(self) -> str:
        """The graph as code, and the guards, for observers of passes."""
        parts = [] if self.captured is None else [show(signature_of(self.captured))]
        return "\n".join([*parts, *filter(None, [self.error]), *map(guard_text, self.guards)])


@dataclass(frozen=True, slots=True)
class Replacement:
    """The replacement code of a frame. The passes ``GUARDING`` and ``WRITING`` make it."""

    frame: RealFrame
    """The frame that was traced."""
    code: CodeType
    """The code that is replaced."""
    written: Written
    """The result of the trace."""
    options: CaptureOptions
    """The options of this compilation."""
    guards: tuple[Guard, ...]
    """The current guards. ``guard_filter_fn`` may have dropped some, and the backend may have added some."""
    tree: Any = None
    """The native tree of the guards."""
    error: Exception | None = None
    """The error from lowering the guards, or None."""
    failure: GuardFailure | None = None
    """The guard that rejects the traced frame, or None."""
    graph: Callable[..., Any] | None = None
    """The compiled graph, or None before the backend has compiled it."""
    emitted: Emitted | None = None
    """The bytecode and its text, or None before the pass ``assemble``."""

    @property
    def text(self) -> str:
        """The guards, an error, and the code as text, for observers of passes."""
        rejected = "" if self.failure is None else f"rejected: {self.failure.message}"
        error = "" if self.error is None else f"not lowered: {self.error}"
        code = "" if self.emitted is None else self.emitted.text
        return "\n".join([*map(guard_text, self.guards), *filter(None, (error, rejected, code))])

    def with_guards(self, guards: tuple[Guard, ...]) -> Replacement:
        """Return the replacement with these guards and their tree.

        Raises TypeError or ValueError if a guard has no native form.
        """
        inputs = self.written.draft and self.written.draft.inputs
        known = self.tree.meta if self.tree and guards[: len(self.guards)] == self.guards else ()
        tree = compile_guards(guards, self.code, inputs.sources if inputs else (), known)
        return replace(self, guards=guards, tree=tree)


def filter_guards(replacement: Replacement) -> Replacement | NothingToDo:
    """Keep only the guards that the option ``guard_filter_fn`` selects.

    >>> keep = lambda guards: [guard.guard_type == "TENSOR_MATCH" for guard in guards]
    >>> after("filter_guards", lambda x, n: x + n, torch.ones(3), 2, guard_filter_fn=keep)
    type(x) is torch.Tensor and x.dtype == torch.float32 ... and x.shape == (3,) and x.stride() == (1,) ...
    """
    wanted = replacement.options.guard_filter_fn
    if wanted is None:
        return NothingToDo("guard_filter_fn is not set")
    return replace(replacement, guards=apply_filter(replacement.guards, wanted, replacement.frame))


def lower_guards(replacement: Replacement) -> Replacement:
    """Compile the guards into one native tree. Guards with a common prefix of their sources share its nodes.

    >>> after("lower_guards", lambda x, n: x + n[0] + n[1], torch.ones(3), [1, 2])
    type(x) is torch.Tensor and x.dtype == torch.float32 ... and x.shape == (3,) and x.stride() == (1,) ...
    type(n) is list ...
    type(n[0]) is int and n[0] == 1 ...
    type(n[1]) is int and n[1] == 2 ...
    """
    try:
        return replacement.with_guards(replacement.guards)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        # The error is part of the result, so that an observer of the passes can show it.
        return replace(replacement, error=error)


def check_guards(replacement: Replacement) -> Replacement | NothingToDo:
    """Check the guards on the traced frame. They must hold.

    >>> after("check_guards", lambda x, n: x + n, torch.ones(3), 2)
    type(x) is torch.Tensor and x.dtype == torch.float32 ... and x.shape == (3,) and x.stride() == (1,) ...
    type(n) is int and n == 2 ...
    """
    if replacement.tree is None:
        return NothingToDo("there is no tree")
    with put_back():
        return replace(
            replacement,
            failure=first_failure(replacement.tree, replacement.frame.function, replacement.frame.arguments),
        )


def add_late_guards(replacement: Replacement) -> Replacement | NothingToDo:
    """Add the guards on symbolic sizes that the backend has caused.

    >>> def backend(graph, inputs):
    ...     print(int(inputs[1]))
    ...     return graph
    >>> after("add_late_guards", lambda x: x + 1, torch.ones(3), backend=backend, dynamic=True)
    3
    type(x) is torch.Tensor and x.dtype == torch.float32 ... and x.dim() == 1 and x.stride() == (1,) ...
    x.size(0) >= 2
    x.size(0) == 3
    """
    captured = replacement.written.captured
    demands = () if captured is None else tuple(captured.demands())
    seen = {(guard.source, guard.check) for guard in replacement.written.guards} if demands else set()
    added = tuple(Guard(*demand) for demand in demands if demand[:2] not in seen)
    # The program's filter also decides about the guards that the backend has caused.
    late = apply_filter(added, replacement.options.guard_filter_fn, replacement.frame)
    return (
        replacement.with_guards((*replacement.guards, *late))
        if late
        else NothingToDo("the backend has added no guard")
    )


def assemble(replacement: Replacement) -> Replacement | NothingToDo:
    """Write the bytecode: the statements before the graph, the call of the compiled graph, and the statements
    after it.

    >>> def program(x):
    ...     return [x + 1]
    >>> after("assemble", program)
    type(x) is torch.Tensor and x.dtype == torch.float32 ... and x.shape == (3,) and x.stride() == (1,) ...
    ...
    def program(x):
    ...
        return _list_...
    """
    if replacement.written.draft is None:
        return NothingToDo("plain Python raises the exception")
    emitted = through_hooks(
        replacement.written.draft.complete(replacement.graph), replacement.code, replacement.frame
    )
    return replace(replacement, emitted=emitted)


GUARDING: Final = (
    Pass("filter_guards", filter_guards),
    Pass("lower_guards", lower_guards),
    Pass("check_guards", check_guards),
)
"""The passes before the backend compiles the graph."""

WRITING: Final = Pass("add_late_guards", add_late_guards), Pass("assemble", assemble)
"""The passes after the backend has compiled the graph."""


def run(passes: tuple[Pass[Replacement], ...], replacement: Replacement) -> Replacement:
    """Run passes that make replacement code. Observers get the replacement as text after each pass."""
    return run_passes("capture", passes, replacement, attrgetter("text"))


def has_tensors(draft: Draft) -> bool:
    """Whether the graph computes more than Python numbers.

    Numbers alone are no reason to compile: a number becomes symbolic only after it has changed between calls.
    """
    return draft.captured is not None and not computes_numbers_only(draft.captured)


def gets_tensors(frame: RealFrame) -> bool:
    """Whether an argument of the frame is a tensor."""
    return any(isinstance(value, torch.Tensor) for value in frame.arguments.values())
