"""Operators without a row in ``operators``: those of programs, of libraries and of later releases of torch.

Such an operator is run on fakes. A probe in the place of each function tells on which inputs the operator calls the
function; the interpreter then traces the function on inputs like them. Tensors that the functions close over are
appended to the operands, if the operator passes further operands on to its functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import fx

from fxstack_capture.torch_compat import (
    FakeTensorMode,
    HigherOrderOperator,
    OpOverload,
    OpOverloadPacket,
    pytree,
)
from fxstack_capture.torch_side.higher_order import subgraphs
from fxstack_capture.torch_side.higher_order.nested.calls import GraphsOfCall
from fxstack_capture.torch_side.higher_order.subgraphs import Subgraph
from fxstack_capture.torch_side.recording.execution import place_of, run_fake
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

_ATTRIBUTES = {"switch": "switch_branch{}"}
"""The beginnings of attribute names that torch's compiler gives to the functions of an operator, with their numbers."""
_NOT_FUNCTIONS = (torch.Tensor, type, OpOverload, OpOverloadPacket, HigherOrderOperator)
"""Callables that an operator takes as values."""


class _Called(BaseException):
    """A function of the operator was called."""

    def __init__(self, probe: _Probe, args: Args, kwargs: Kwargs) -> None:
        super().__init__()
        self.probe, self.args_, self.kwargs = probe, args, kwargs


@dataclass(slots=True, eq=False)
class _Probe:
    """Stands for a function while the operator runs on fakes: reports the call, or returns fakes like the results."""

    function: Any
    body: Subgraph | None = None
    inputs: list[Any] | None = None
    """The leaves of the arguments of the function."""
    expected: int | None = None
    """If set, a call with another number of leaves is reported again."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        count = len(pytree.tree_leaves((args, kwargs)))
        if self.body is None or (self.expected is not None and count != self.expected):
            raise _Called(self, args, kwargs)
        fakes = [torch.empty_like(x) for x in self.body.outputs]
        return fakes[0] if self.body.is_single else tuple(fakes)


class _UnknownCall:
    """One call of an operator without a row."""

    def __init__(self, tracer: TracerProtocol, operator: Any, args: Args, kwargs: Kwargs) -> None:
        self.tracer = tracer
        self.operator = operator
        self.call = GraphsOfCall(tracer, operator)
        leaves, self.spec = pytree.tree_flatten((args, kwargs))
        self.probes = [_Probe(leaf) if _is_function(leaf) else None for leaf in leaves]
        self.leaves = [
            leaf if probe is None else probe for leaf, probe in zip(leaves, self.probes, strict=True)
        ]
        self.functions = [probe for probe in self.probes if probe is not None]

    def record(self) -> Any:
        """Trace the functions, and record the node of the operator."""
        while (called := self._run(self.leaves)) is not None:
            self._trace(called)
        for probe in self.functions:
            if probe.body is None:
                raise self._refusal(
                    probe.function, "does not call it on fake tensors, so its inputs are unknown"
                )
        bodies = [probe.body for probe in self.functions if probe.body is not None]
        free = tuple(dict.fromkeys(node for body in bodies for node in body.free))
        leaves, spec = self._with_operands(free)
        modules = [subgraphs.cut_out(self.tracer, body, free) for body in bodies]
        self.tracer.builder.roll_back(self.call.mark)
        return self._write(leaves, spec, modules)

    def _run(self, leaves: Sequence[Any], spec: pytree.TreeSpec | None = None) -> _Called | None:
        """Run the operator on fakes. Return the first call of a function that is not traced yet."""
        args, kwargs = pytree.tree_unflatten(list(leaves), self.spec if spec is None else spec)
        try:
            with self.tracer.unrecorded(), torch.no_grad():
                run_fake(self.tracer.mode, self.operator, args, kwargs)
        except _Called as called:
            return called
        return None

    def _trace(self, called: _Called) -> None:
        """Trace the function of a probe on inputs like those of the call."""
        probe, function = called.probe, called.probe.function
        leaves, spec = pytree.tree_flatten((called.args_, called.kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        likes = [self._like(leaf) for leaf in tensors]
        fn = partial(_call_on_leaves, function, leaves, spec)
        vars(fn)["__wrapped__"] = function  # for messages
        body = self.call.trace(fn, likes)
        is_single = self.tracer.trace.calls.call(pytree.TreeSpec.is_leaf, (body.spec,), {})
        if not is_single and not _is_flat_tuple(body.spec):
            raise self._refusal(function, "gets neither a tensor nor a tuple of tensors from it")
        probe.body, probe.inputs = replace(body, is_single=is_single), leaves

    def _like(self, fake: torch.Tensor) -> torch.Tensor:
        """Return the operand of the program that has the metadata of ``fake``, for its ``requires_grad``."""
        operands = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]
        return next((x for x in operands if x is fake), fake)

    def _with_operands(self, free: tuple[fx.Node, ...]) -> tuple[list[Any], pytree.TreeSpec]:
        """Return the arguments with the values of ``free`` behind the operands that the functions get."""
        if not free:
            return self.leaves, self.spec
        values = [node.meta["val"] for node in free]
        args, kwargs = pytree.tree_unflatten(list(self.leaves), self.spec)
        for probe in self.functions:
            probe.expected = len(probe.inputs or ()) + len(values)
        for position in (len(args), *range(len(args))):
            extended = _extended(args, position, values)
            if extended is None:
                continue
            leaves, spec = pytree.tree_flatten((extended, kwargs))
            try:
                is_passed_on = self._run(leaves, spec) is None
            except TypeError:
                is_passed_on = False
            if is_passed_on:
                return leaves, spec
        names = ", ".join(node.name for node in free)
        raise self._refusal(self.functions[0].function, f"does not pass on what it closes over ({names})")

    def _write(self, leaves: Sequence[Any], spec: pytree.TreeSpec, modules: Sequence[fx.GraphModule]) -> Any:
        """Run the operator with the graphs of its functions, and add its node."""
        tracer, builder = self.tracer, self.tracer.builder
        graphs = iter(modules)
        real = [next(graphs) if isinstance(leaf, _Probe) else leaf for leaf in leaves]
        args, kwargs = pytree.tree_unflatten(real, spec)
        with tracer.unrecorded():
            result = run_fake(tracer.mode, self.operator, args, kwargs)
        name = self.operator.name()
        prefix = _ATTRIBUTES.get(name, f"{name}_body")
        loaded = iter([builder.module(prefix.format(i), module) for i, module in enumerate(modules)])
        nodes = [next(loaded) if isinstance(leaf, _Probe) else builder.argument(leaf, []) for leaf in leaves]
        node_args, node_kwargs = pytree.tree_unflatten(nodes, spec)
        node = builder.add("call_function", self.operator, node_args, node_kwargs)
        tracer.annotate(node)
        builder.bind(result, node)
        tracer.all_bound()
        return result

    def _refusal(self, function: object, why: str) -> BaseException:
        """Return a graph break: the operator does something with a function that a node cannot express."""
        return self.call.refuse(f"of {place_of(function)}: the operator {why}; it")


def _is_function(leaf: object) -> bool:
    """Return whether an argument of an operator is a function that the operator may call."""
    return callable(leaf) and not isinstance(leaf, _NOT_FUNCTIONS)


def _is_flat_tuple(spec: pytree.TreeSpec) -> bool:
    """Return whether ``spec``, which is no leaf, is that of a tuple of leaves."""
    return spec.type is tuple and all(child.is_leaf() for child in spec.children())


def _extended(args: Args, position: int, values: list[Any]) -> Args | None:
    """Return ``args`` with ``values`` appended, to the arguments or to the tuple or list at ``position``."""
    if position == len(args):
        return (*args, *values)
    group = args[position]
    if type(group) not in (tuple, list):
        return None
    return (*args[:position], type(group)([*group, *values]), *args[position + 1 :])


def _call_on_leaves(function: Any, leaves: list[Any], spec: pytree.TreeSpec, *tensors: torch.Tensor) -> Any:
    """Call ``function`` with the arguments of ``spec``, whose tensors are ``tensors``. The interpreter runs this."""
    new = iter(tensors)
    values = [next(new) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    args, kwargs = pytree.tree_unflatten(values, spec)
    return function(*args, **kwargs)


def call_unknown(tracer: TracerProtocol, operator: Any, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for operators without a row."""
    call = _UnknownCall(tracer, operator, args, kwargs)
    if not any(issubclass(FakeTensorMode, key) for key in operator.python_key_table if isinstance(key, type)):
        raise call.call.refuse("an operator without a rule for fake tensors (register_fake),")
    if not call.functions:
        return tracer.record(operator, args, kwargs)
    return call.record()
