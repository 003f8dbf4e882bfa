"""Truth values of tensors that a trace assumes (``interpreter.checks``), and fallback to eager.

If an assumption fails, the frame runs again in plain Python from its beginning. Therefore the graph must not
have written to its inputs, changed torch's state or called operators with unknown effects. The second run
draws its random numbers from the state before the first run. The same holds for Python's generators.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType

import torch
from torch import fx

from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_side.global_state.state import sets_state
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.records import Blocks

_OWN = frozenset({"aten", "prims", "prim"})
_INDEXING = frozenset(
    {
        *("index", "index_put", "index_put_", "index_select", "index_add", "index_copy", "gather"),
        *("scatter", "scatter_add", "scatter_reduce", "take", "embedding", "nll_loss_forward"),
        *("_embedding_bag", "index_fill", "one_hot", "put", "_unsafe_index", "multinomial"),
    }
)
"""Operators that index. On a GPU a wrong index ends the process. The check may be there to prevent that."""


class RefusedError(Exception):
    """Raised at the end of a trace if its graph cannot fall back to eager. The frame is traced again.

    The next trace makes no assumptions. ``args`` is (True,) if there are several assumptions: the next graph may
    then end at its first write instead.
    """


class HandledError(RefusedError):
    """A handler of the program may see an error of a graph that cannot be retracted.

    ``calls`` has, for each set of blocks that receive errors, the numbers of the first and of the last call
    whose error the blocks receive.
    """

    def __init__(self, calls: dict[Blocks, tuple[int, int]]) -> None:
        super().__init__()
        self.calls = calls


class Assumptions:
    """The assumptions of one trace. ``passed`` is a tensor, true if all assumptions hold, or ``None``."""

    def __init__(self, tracer: TracerProtocol) -> None:
        self._tracer = tracer
        self.region: fx.Node | None = None
        """The last node before code whose nodes do not stay in the graph. ``None`` outside of such code."""
        self.may_assert = False
        """Whether the nodes of the region become a nested graph, which can hold assertions."""
        self.handled_calls: dict[Blocks, tuple[int, int]] = {}
        """By the blocks around them: calls that may raise where the program handles errors (``HandledError``).

        Calls inside of ``TracePlan.unseen`` are left out.
        """
        self._calls = 0
        self.passed: torch.Tensor | None = None
        self.several = False
        """Whether the graph has more than one assumption."""

    @property
    def captures_numbers(self) -> bool:
        """Whether a number in a tensor becomes a symbol: if the options say so, and in a nested graph.

        Without the nested graph, torch's operator would trace the function, and has no number either.
        """
        return self.may_assert or self._tracer.trace.options.capture_scalar_outputs

    @contextmanager
    def none_inside(self, *, nested: bool) -> Iterator[None]:
        """Disallow assumptions inside the context, because its nodes do not stay in the graph.

        ``nested``: the nodes become a nested graph.
        """
        before = self.region, self.may_assert
        self.region, self.may_assert = self._tracer.builder.mark(), nested
        try:
            yield
        finally:
            self.region, self.may_assert = before

    def add(self, value: torch.Tensor, *, truth: bool) -> bool:
        """Assume that ``bool(value) is truth``, and record its nodes. Return False if that is not possible."""
        tracer = self._tracer
        trace = tracer.trace
        if (
            not (trace.may_fall_back and trace.plan.assuming and trace.options.assume_checks)
            or self.region is not None
        ):
            return False
        if tracer.transforms.inside or value.numel() != 1 or value.is_sparse:
            return False
        record = tracer.record
        fact = record(torch.Tensor.reshape, (value, ()), {})
        fact = record(torch.Tensor.bool if truth else torch.logical_not, (fact,), {})
        before = self.passed
        self.several = before is not None
        self.passed = fact if before is None else record(torch.logical_and, (before, fact), {})
        return True

    def note_written(self, storage: int) -> None:
        """Note a recorded write to a storage. In a trace that ends at writes, break the graph at a write to an input.

        ``storage``: the ``_cdata`` of the storage. Such a trace follows a ``RefusedError``.
        """
        if self._tracer.trace.plan.ends_at_writes and self.passed is not None and storage in self._storages():
            raise graph_break("unsupported-call", "an operator that changes an input after checks of tensors")

    def _storages(self) -> set[int]:
        """Return the storages of the inputs of the graph, each as ``_cdata``."""
        return {fake.untyped_storage()._cdata for fake, _, _ in self._tracer.inputs()}

    def note_data_checks(self, name: str) -> None:
        """Note a recorded call that may raise for its data (``name``), inside of a block that would see the error.

        A trace after a ``HandledError`` breaks the graph here.
        """
        trace = self._tracer.trace
        blocks = trace.interp.receivers()
        if not blocks:
            return
        error = trace.call_raises()
        if error is not None:
            raise error
        self._calls += 1
        if trace.plan.unseen is None or blocks not in trace.plan.unseen:
            if trace.plan.unseen is not None:
                raise graph_break("handled-error", name)
            first, _ = self.handled_calls.get(blocks, (self._calls, 0))
            self.handled_calls[blocks] = first, self._calls

    @property
    def handled(self) -> bool:
        """Whether the graph has a call that may raise inside of a block of the program that handles errors."""
        return bool(self.handled_calls)

    @property
    def operators(self) -> frozenset[fx.Node]:
        """The nodes of the graph so far that are no inputs and set no state of torch."""
        nodes = self._tracer.builder.graph.nodes
        return frozenset(node for node in nodes if node.op != "placeholder" and not sets_state(node))

    @property
    def draws(self) -> bool:
        """Whether the graph draws random numbers. Valid only after the trace."""
        operators = self._tracer.mode.operators
        return any(
            torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ()) for operator in operators
        )

    def demand_retractable(self) -> None:
        """Raise ``RefusedError`` if running the graph has effects that nothing can undo."""
        if self._tracer.state_delta() or not self.retractable:
            raise RefusedError(self.several)

    @property
    def retractable(self) -> bool:
        """Whether running the graph has no effects except on torch's state (``emit.endings.graph_errors``)."""
        tracer = self._tracer
        operators = tracer.mode.operators
        on_cpu = all(fake.device.type == "cpu" for fake, _, _ in tracer.inputs())
        leaves_traces = (
            bool(tracer.mutated_storages & self._storages())
            or any(getattr(operator, "namespace", "") not in _OWN for operator in operators)
            or any(_is_programs_code(node.target) for node in tracer.builder.graph.nodes)
        )
        needs_cpu = self.draws or any(
            operator.name().removeprefix("aten::").split(".")[0] in _INDEXING for operator in operators
        )
        return not (leaves_traces or (needs_cpu and not on_cpu))


def _is_programs_code(target: object) -> bool:
    """Return whether a node calls the program's own code (``allow_in_graph``)."""
    return isinstance(target, FunctionType) and not str(target.__module__).startswith(("torch", "fxstack_"))
