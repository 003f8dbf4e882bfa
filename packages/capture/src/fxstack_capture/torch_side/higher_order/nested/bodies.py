"""The nested graph of one function of a loop or branch, from the traced function to the ``GraphModule``.

An operator calls its functions as pure functions. The program's functions need not be pure: a function may
write to tensors from outside (a cache), and may return its inputs, views of its inputs, or the same tensor
twice. Therefore the nested graph works on a copy of each tensor that it writes to, and returns the copy as a
further result, which the outer graph writes back (``GraphsOfCall.write_back``). Results that share memory become
copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from fxstack_capture.torch_side.autograd.accumulation import is_dense
from fxstack_capture.torch_side.higher_order import subgraphs
from fxstack_capture.torch_side.higher_order.subgraphs import Subgraph
from fxstack_capture.torch_side.recording.protocol import TracerProtocol

Result = tuple[fx.Node, torch.Tensor]
"""A node of the nested graph, and the fake of its value."""


def storage_of(tensor: torch.Tensor) -> int:
    """Return the identity of the tensor's storage."""
    return int(tensor.untyped_storage()._cdata)


@dataclass(frozen=True, slots=True)
class Written:
    """Memory from outside that functions write to: the tensor whose copy the nested graphs use, and its node.

    ``base`` covers the memory of all other tensors on the same storage that the functions use. ``line`` is the
    program's line of the first write.
    """

    base: torch.Tensor
    node: fx.Node
    line: str


class Body:
    """The nested graph of ``subgraph`` under construction.

    ``inputs`` are the nodes that its placeholders represent. ``same``: for inputs of the function, the outer node
    whose placeholder the input gets.
    """

    def __init__(
        self,
        tracer: TracerProtocol,
        subgraph: Subgraph,
        inputs: Sequence[fx.Node],
        same: Mapping[fx.Node, fx.Node],
    ) -> None:
        self._tracer = tracer
        self._inputs = inputs
        self._graph, self._copies = subgraphs.copy_nodes(tracer, subgraph, inputs, same)
        self.results: list[Result] = [
            (self._copies[node], value)
            for node, value in zip(subgraph.results, subgraph.outputs, strict=True)
        ]

    def call(
        self, fn: Callable[..., Any], args: Sequence[Any], values: Sequence[Any], **kwargs: Any
    ) -> Result:
        """Add a call at the end of the graph. ``values`` are the values of ``args``, which hold nodes."""
        with self._tracer.unrecorded(), self._tracer.mode, torch.no_grad():
            value = fn(*values, **kwargs)
        node = self._graph.call_function(fn, tuple(args), kwargs)
        meta: dict[str, Any] = next((arg.meta for arg in args if isinstance(arg, fx.Node)), {})
        node.meta = {**meta, "val": value, "example_value": value}
        return node, value

    def copy(self, result: Result, memory_format: torch.memory_format = torch.preserve_format) -> Result:
        """Add a copy of a result, with memory of its own."""
        node, value = result
        return self.call(torch.clone, (node,), (value,), memory_format=memory_format)

    def lay_out(self, index: int, like: torch.Tensor) -> None:
        """Give the result ``index`` the strides of ``like``, which has the same sizes."""
        node, value = self.results[index]
        if same_numbers(value.stride(), like.stride()):
            return
        if like.is_contiguous():
            self.results[index] = self.copy((node, value), torch.contiguous_format)
            return
        made, empty = self.call(torch.empty_like, (node,), (value,))
        strides = list(like.stride())
        if not same_numbers(empty.stride(), strides):
            made, empty = self.call(
                torch.empty_strided,
                (list(value.size()), strides),
                (list(value.size()), strides),
                dtype=value.dtype,
                device=value.device,
            )
        self.results[index] = self.call(torch.Tensor.copy_, (made, node), (empty, value))

    def isolate(self, written: Sequence[Written], tensors: Mapping[fx.Node, torch.Tensor]) -> None:
        """Work on copies of the written tensors, and add the copies to the results.

        ``tensors``: for each node of ``inputs`` that is a tensor, the tensor of the outer graph.
        """
        for each in written:
            with self._at_start():
                copy = self.copy((self._copies[each.node], each.base))
                for node, tensor in self._sharing(each, tensors):
                    self._replace(self._copies[node], self._part(tensor, each.base, copy), copy)
            self.results.append(copy)

    def redirect(self, written: Sequence[Written], tensors: Mapping[fx.Node, torch.Tensor]) -> None:
        """Read the written tensors from the placeholders of their bases. The graph itself does not write to them."""
        for each in written:
            base = (self._copies[each.node], each.base)
            for node, tensor in self._sharing(each, tensors):
                if node is each.node or has_geometry_of(tensor, each.base):
                    self._replace(self._copies[node], base, base)
                    continue
                with self._at_start():
                    # In the first iteration, the base may begin elsewhere in its storage than a copy does.
                    copy = self.copy(base)
                    self._replace(self._copies[node], self._part(tensor, each.base, copy), copy)

    def add_copies(self, written: Sequence[Written]) -> None:
        """Add copies of the present values of written tensors to the results, in a graph that only reads them."""
        self.results += [self.copy((self._copies[each.node], each.base)) for each in written]

    def _sharing(
        self, written: Written, tensors: Mapping[fx.Node, torch.Tensor]
    ) -> list[tuple[fx.Node, torch.Tensor]]:
        """Return the inputs on the storage of a written tensor."""
        storage = storage_of(written.base)
        return [(n, tensors[n]) for n in self._inputs if n in tensors and storage_of(tensors[n]) == storage]

    def _at_start(self) -> AbstractContextManager[object]:
        """Insert nodes before the calls of the function, inside the context."""
        first = next((n for n in self._graph.nodes if n.op != "placeholder"), None)
        return nullcontext() if first is None else self._graph.inserting_before(first)

    def _part(self, tensor: torch.Tensor, base: torch.Tensor, copy: Result) -> Result:
        """Return the part of a copy of ``base`` that stands for ``tensor``."""
        if has_geometry_of(tensor, base):
            return copy
        node, value = copy
        geometry = (tensor.size(), tensor.stride(), tensor.storage_offset() - base.storage_offset())
        sizes, strides, offset = list(geometry[0]), list(geometry[1]), geometry[2]
        return self.call(torch.as_strided, (node, sizes, strides, offset), (value, sizes, strides, offset))

    def _replace(self, old: fx.Node, part: Result, base: Result) -> None:
        """Replace a placeholder by ``part``, which is computed from ``base``."""
        new, _ = part
        for user in list(old.users):
            if user is not new and user is not base[0] and new is not old:
                user.replace_input_with(old, new)
        self.results = [(new if node is old else node, fake) for node, fake in self.results]

    def outer_tensors(self) -> dict[fx.Node, torch.Tensor]:
        """Return the tensors that the inputs represent."""
        return {n: n.meta["val"] for n in self._inputs if isinstance(n.meta["val"], torch.Tensor)}

    def make_contiguous(self, index: int) -> None:
        """Make the result ``index`` contiguous."""
        if not self.results[index][1].is_contiguous():
            self.results[index] = self.copy(self.results[index], torch.contiguous_format)

    def separate(self, outside: Iterable[torch.Tensor], *, of: int | None = None) -> None:
        """Replace results that share memory with ``outside`` or with an earlier result by copies.

        ``of``: the number of results that are looked at; all by default. The others are copies already.
        """
        seen = {storage_of(tensor) for tensor in outside}
        for index, (node, value) in enumerate(self.results[:of]):
            storage = storage_of(value)
            if storage in seen or node.op == "placeholder" or not same_number(value.storage_offset(), 0):
                self.results[index] = self.copy((node, value))
            seen.add(storage)

    def module(self, *, is_single: bool = False) -> fx.GraphModule:
        """Return the finished module. ``is_single``: the module returns one value rather than a tuple."""
        nodes, values = tuple(node for node, _ in self.results), tuple(value for _, value in self.results)
        output = self._graph.output(nodes[0] if is_single else nodes)
        output.meta["val"] = values[0] if is_single else values
        for node in reversed(self._graph.nodes):
            if node.target is torch.scalar_tensor and not node.users:
                self._graph.erase_node(node)  # the tensor of a number that both branches return
        return subgraphs.finish(self._tracer, self._graph)


def zip_nodes(subgraph: Subgraph | Sequence[fx.Node], nodes: Sequence[fx.Node]) -> dict[fx.Node, fx.Node]:
    """Return the outer node of each input of a function. ``nodes``: the outer nodes of all inputs, in order."""
    inputs = subgraphs.parameters_of(subgraph) if isinstance(subgraph, Subgraph) else subgraph
    return dict(zip(inputs, nodes, strict=True))


def same_number(number: Any, other: Any) -> bool:
    """Return whether two sizes or strides are equal without a guard."""
    first, second = (x.node.expr if isinstance(x, torch.SymInt) else x for x in (number, other))
    return bool(first == second)


def same_numbers(numbers: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether two lists of sizes or strides are equal without a guard."""
    return len(numbers) == len(others) and all(map(same_number, numbers, others))


def has_geometry_of(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors have the same dtype, sizes, strides and offset."""
    mine, theirs = ((x.size(), x.stride(), (x.storage_offset(),)) for x in (tensor, other))
    return tensor.dtype is other.dtype and all(map(same_numbers, mine, theirs))


def covers(tensor: torch.Tensor, others: Iterable[torch.Tensor]) -> bool:
    """Return whether a copy of ``tensor`` can stand for the memory of ``others``, which are on the same storage."""
    others = list(others)
    if all(has_geometry_of(tensor, other) for other in others):
        return is_dense(tensor)
    numbers = [n for x in (tensor, *others) for n in (*x.size(), *x.stride(), x.storage_offset())]
    if not all(type(number) is int for number in numbers):
        return False
    start, end = _extent(tensor)
    extents = [_extent(other) for other in others]
    fits = all(start <= first and last <= end for first, last in extents)
    return fits and is_dense(tensor) and all(other.dtype is tensor.dtype for other in others)


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the first element of a tensor in its storage, and one more than its last."""
    start = tensor.storage_offset()
    if tensor.numel() == 0:
        return start, start
    last = sum((size - 1) * stride for size, stride in zip(tensor.size(), tensor.stride(), strict=True))
    return start, start + last + 1
