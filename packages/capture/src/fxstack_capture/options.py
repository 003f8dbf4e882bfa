"""All options of capture, in one frozen record, and the settings of torch that set them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from fxstack_capture.guards.filtering import GuardFilter
from fxstack_interchange.torch_facts.settings_table import DYNAMO
from fxstack_interchange.torch_facts.torch_settings import (
    options_from_environment,
    options_from_torch,
    with_unset_options,
)


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """The options of one ``optimize`` or ``capture`` call. The record is immutable and comparable."""

    fullgraph: bool = False
    """Raise an error instead of breaking the graph."""
    dynamic: bool | None = None
    """Whether sizes and numbers are symbolic. True: from the first call on. False: never. None: from their
    first change on.
    """
    recompile_limit: int = 8
    """Maximum number of entries per code object, backend and torch state (grad mode, autocast).

    Beyond the limit, new kinds of arguments run in plain Python.
    """
    accumulated_recompile_limit: int = 256
    """Maximum number of entries as for ``recompile_limit``, but including removed entries."""
    fail_on_recompile_limit: bool = False
    """Raise an error when a limit on entries is reached. ``fullgraph`` has the same effect."""
    error_on_recompile: bool = False
    """Raise ``RecompileError`` with the reason instead of compiling a function again."""
    capture_scalar_outputs: bool = False
    """``tensor.item()`` becomes an unbacked symbol. Otherwise it breaks the graph."""
    capture_dynamic_output_shape_ops: bool = False
    """Results of ``nonzero`` and similar operators get unbacked sizes. Otherwise these operators break the
    graph.
    """
    automatic_dynamic: bool = True
    """A size or number that changes becomes symbolic. If False, only marked or chosen sizes and numbers are
    symbolic.
    """
    specialize_int: bool = False
    """Integers that the program passes are constants of the graph, even if they change."""
    specialize_float: bool = False
    """Floating-point numbers that the program passes are constants of the graph, even if they change."""
    compiled_autograd: bool = False
    """Run calls under torch's compiled autograd, and compile the graphs of backward passes by the same backend."""
    profiler_ranges: bool = False
    """Keep ranges of ``torch.profiler.record_function`` in the graph and in profiles. No kernel crosses their ends."""
    disable: bool = False
    """Run everything in plain Python."""
    suppress_errors: bool = False
    """If the backend refuses a graph, run its frame in plain Python, after a warning."""
    reorderable_functions: frozenset[Callable[..., Any]] = frozenset()
    """Functions such as ``print`` whose calls run after the graph. Otherwise their calls break the graph."""
    ignored_functions: frozenset[Callable[..., Any]] = frozenset()
    """Functions whose calls do nothing in compiled code, and give None."""
    only_compliant_operators: bool = False
    """Break the graph at an operator without ``torch.Tag.pt2_compliant_tag``."""
    inline_limit: int = 400
    """Maximum depth of inlined Python calls. A deeper call breaks the graph."""
    verify_correctness: bool = False
    """Run every graph in addition to its compiled code, and raise ``WrongResultError`` if the results differ."""
    assume_checks: bool = True
    """Continue the trace after an ``if`` or ``assert`` on a tensor if one side only raises.

    The condition is checked after the graph has run.
    """
    leave_unprofitable: bool = False
    """Time compiled and plain calls of a callable with graph breaks.

    If plain calls are faster, the callable runs in plain Python.
    """
    guard_filter_fn: GuardFilter | None = None
    """Function that selects the guards that an entry keeps (``guards.filtering``).

    The program must make sure that the removed guards always hold.
    """
    guard_fail_fn: Callable[[Any], object] | None = None
    """Called at a recompilation for each entry whose guards failed. Its argument has ``reason`` and
    ``orig_code``.
    """
    guard_export_fn: Callable[[Any], object] | None = None
    """Called for each entry that has a graph, with the guards as a ``torch._guards.GuardsSet``."""
    dynamic_sources: str = ""
    """Names of tensors and numbers that are symbolic from the start (``shapes.chosen``).

    Commas separate the names: ``"L['x'], L['y']:0"``.
    """
    unbacked_sources: str = ""
    """Names of tensors and numbers, as in ``dynamic_sources``. Their sizes are unbacked, as after
    ``mark_unbacked``.
    """


_DEFAULTS: Final = CaptureOptions()


def with_settings(options: CaptureOptions) -> CaptureOptions:
    """Return ``options``. Each option with its default value gets the value in ``torch._dynamo.config``."""
    return with_unset_options(options, _DEFAULTS, options_from_torch(DYNAMO))


def with_environment(options: CaptureOptions) -> CaptureOptions:
    """Return ``options``. Each option with its default value gets the value of torch's environment variable."""
    return with_unset_options(options, _DEFAULTS, options_from_environment(DYNAMO))


def with_fullgraph(options: CaptureOptions) -> CaptureOptions:
    """Return ``options``. With ``fullgraph``, data-dependent numbers and sizes become symbols.

    A graph break is an error under ``fullgraph``, so torch captures them as well.
    """
    if not options.fullgraph:
        return options
    return replace(options, capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
