"""All options of capture, in one frozen record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fxstack_capture.guards.filtering import GuardFilter


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """Options of one ``optimize``/``capture`` call; immutable and comparable."""

    fullgraph: bool = False
    """Raise instead of breaking the graph."""
    dynamic: bool | None = None
    """True: sizes and numbers are symbolic from the start; False: never; None: once they change."""
    recompile_limit: int = 8
    """Entries per code object, backend and state of torch (grad mode, autocast); beyond it new kinds of arguments run in
    plain Python.
    """
    accumulated_recompile_limit: int = 256
    """The same, counting entries that have died since."""
    fail_on_recompile_limit: bool = False
    """Raise instead, when a limit is reached; so does ``fullgraph``."""
    error_on_recompile: bool = False
    """Raise ``RecompileError``, which says why, instead of compiling a function again."""
    capture_scalar_outputs: bool = False
    """``tensor.item()`` becomes an unbacked symbol instead of a graph break."""
    capture_dynamic_output_shape_ops: bool = False
    """``nonzero`` and the like become unbacked sizes instead of graph breaks."""
    automatic_dynamic: bool = True
    """A size or number that changes becomes symbolic; False: only those that are marked or chosen are."""
    specialize_int: bool = False
    """Integers that the program passes are constants of the graph, also when they change."""
    specialize_float: bool = False
    """The same for floating-point numbers."""
    disable: bool = False
    """Run everything in plain Python."""
    suppress_errors: bool = False
    """A frame whose graph the backend refuses runs in plain Python, after a warning."""
    reorderable_functions: frozenset[Callable[..., Any]] = frozenset()
    """Functions such as ``print`` whose calls happen behind the graph instead of ending it."""
    ignored_functions: frozenset[Callable[..., Any]] = frozenset()
    """Functions whose calls do nothing in compiled code, and give None."""
    only_compliant_operators: bool = False
    """An operator without ``torch.Tag.pt2_compliant_tag`` ends the graph."""
    inline_limit: int = 400
    """Depth of inlined Python calls beyond which tracing gives up on the frame."""
    verify_correctness: bool = False
    """Run every graph beside its compiled code, and raise ``WrongResultError`` where they differ."""
    assume_checks: bool = True
    """Trace past ``if`` and ``assert`` on tensors of which one side only raises, and look at them when the graph has run."""
    leave_unprofitable: bool = False
    """Time calls of a callable with graph breaks, compiled and plain; where plain ones are faster it runs in plain Python."""
    guard_filter_fn: GuardFilter | None = None
    """Which guards of an entry are kept (``guards.filtering``): the program answers for those that are not."""
    dynamic_sources: str = ""
    """Names of tensors and numbers, with commas, that are symbolic from the start (``shapes.chosen``): ``"L['x'], L['y']:0"``."""
    unbacked_sources: str = ""
    """The same for sizes that nothing may look at, as after ``mark_unbacked``."""
