"""All options of capture, in one frozen record."""

from __future__ import annotations

from dataclasses import dataclass

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
