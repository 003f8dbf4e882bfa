"""All options of capture, in one frozen record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fxstack_capture.guards.filtering import GuardFilter


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """The options of one ``optimize`` or ``capture`` call. The record is immutable and comparable."""

    fullgraph: bool = False
    """Raise an error instead of breaking the graph."""
    dynamic: bool | None = None
    """True: sizes and numbers are symbolic from the start; False: never; None: when they change."""
    recompile_limit: int = 8
    """Maximum number of entries per code object, backend and torch state (grad mode, autocast).

    Beyond the limit, new kinds of arguments run in plain Python.
    """
    accumulated_recompile_limit: int = 256
    """The same limit for a count that includes removed entries."""
    fail_on_recompile_limit: bool = False
    """Raise an error when a limit is reached. ``fullgraph`` has the same effect."""
    error_on_recompile: bool = False
    """Raise ``RecompileError`` with the reason instead of compiling a function again."""
    capture_scalar_outputs: bool = False
    """``tensor.item()`` becomes an unbacked symbol instead of a graph break."""
    capture_dynamic_output_shape_ops: bool = False
    """Results of ``nonzero`` and similar operators get unbacked sizes instead of a graph break."""
    automatic_dynamic: bool = True
    """A size or number that changes becomes symbolic; False: only those that are marked or chosen are."""
    specialize_int: bool = False
    """Integers that the program passes are constants of the graph, also when they change."""
    specialize_float: bool = False
    """The same for floating-point numbers."""
    compiled_autograd: bool = False
    """Calls run under torch's compiled autograd, and the graphs of backward passes are compiled in the same way."""
    profiler_ranges: bool = False
    """Ranges of ``torch.profiler.record_function`` are in the graph and in profiles. No kernel crosses their ends."""
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
    """Maximum depth of inlined Python calls. Beyond the limit, tracing gives up the frame."""
    verify_correctness: bool = False
    """Run every graph beside its compiled code, and raise ``WrongResultError`` if the results differ."""
    assume_checks: bool = True
    """Trace past an ``if`` or ``assert`` on a tensor if one side only raises.

    The condition is checked after the graph has run.
    """
    leave_unprofitable: bool = False
    """Time compiled and plain calls of a callable with graph breaks.

    If plain calls are faster, the callable runs in plain Python.
    """
    guard_filter_fn: GuardFilter | None = None
    """Selects the guards that an entry keeps (``guards.filtering``).

    The program is responsible for the removed guards.
    """
    guard_fail_fn: Callable[[Any], object] | None = None
    """Called for each entry that does not fit when a function is compiled again: with ``reason``, ``orig_code``."""
    guard_export_fn: Callable[[Any], object] | None = None
    """Called with the guards of each entry that has a graph, as a ``torch._guards.GuardsSet``."""
    dynamic_sources: str = ""
    """Names of tensors and numbers that are symbolic from the start (``shapes.chosen``).

    Commas separate the names: ``"L['x'], L['y']:0"``.
    """
    unbacked_sources: str = ""
    """The same for unbacked sizes, as after ``mark_unbacked``."""
