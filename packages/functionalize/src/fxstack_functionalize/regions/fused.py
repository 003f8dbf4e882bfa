"""Reductions that a compiler may fuse with operators on the other side of a region's boundary.

A compiler chooses the loops of a fused kernel from all of its operators, and a sum adds its terms in the order of the
loops. A region ends the fusion at its boundary, so a sum near to the boundary may round in another way than without
regions. ``refused_region`` finds such sums. Sums along contiguous rows, and sums over all rows of a contiguous matrix,
have one order in any kernel that only reads contiguous tensors of the same sizes: these are shared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from operator import attrgetter, getitem
from typing import Any

import sympy
import torch
from torch.fx import GraphModule, Node

from fxstack_functionalize.regions.outline import INVOKE
from fxstack_functionalize.torch_compat import OpOverload

BACKWARD = "partitioned_bw_"
"""The prefix of the name of a region's backward."""
SIBLINGS = 8
"""The number of readers of the same memory that a compiler may fuse with one more reader."""
LANES, FEW_LANES = 64, 16
"""A row of a multiple of ``LANES`` numbers is added in as many partial sums, a row of 4-byte numbers in ``FEW_LANES``."""
ROWS = 8
"""With fewer results than this, threads may share one sum."""
LONGEST = 1 << 14
"""Sums of this length may be shared by threads."""

_BARRIERS = frozenset(
    """mm addmm bmm baddbmm convolution convolution_backward embedding_dense_backward index_put scatter scatter_add
    _scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward
    _scaled_dot_product_efficient_attention _scaled_dot_product_efficient_attention_backward
    _scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward sort topk""".split()  # noqa: SIM905
)
"""Operators that compilers call, or compute in a kernel of their own."""
_IN_PLACE = frozenset(
    """view _unsafe_view reshape unsqueeze squeeze alias detach clone _to_copy expand lift_fresh_copy embedding
    native_dropout bernoulli rand_like full full_like zeros zeros_like ones ones_like empty empty_like
    scalar_tensor arange""".split()  # noqa: SIM905
)
"""Operators, beside those with the tag ``pointwise``, that compute each element on its own, in row-major order."""
_MOVED = frozenset(
    """t transpose permute slice select split split_with_sizes unbind cat stack constant_pad_nd flip roll index
    index_select gather as_strided diagonal unfold repeat slice_scatter select_scatter slice_backward
    select_backward tril triu""".split()  # noqa: SIM905
)
"""Operators without sums that read or write memory in another order."""
_ROWS_ALONE = frozenset({"_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"})
_REDUCTIONS = frozenset({"sum", "mean", "amax", "amin", "var", "var_mean", "std"})
_NORMS = frozenset(
    {"native_layer_norm", "native_layer_norm_backward", "_fused_rms_norm", "_fused_rms_norm_backward"}
)


@dataclass(slots=True)
class _Step:
    """An operator of a graph in which each call of a region is replaced by the operators of its body."""

    node: Node
    region: str
    """The name of the region; empty outside of regions."""
    call: int
    """The number of the call; 0 outside of regions."""
    backward: bool
    """Whether the step depends on a gradient. The forward and the backward are compiled apart."""
    sources: list[int]
    """The positions of the steps and inputs that it reads."""
    fusible: bool


def refused_region(module: GraphModule, tangents: Sequence[str], automatic: set[str]) -> str | None:
    """Return the name of an automatic region with a sum whose order may change at a boundary; None if there is none.

    ``tangents``: the names of the gradients among the inputs. ``automatic``: the names of the automatic regions.
    """
    steps = _Inlined(module, frozenset(tangents)).steps
    users: dict[int, list[int]] = defaultdict(list)
    for position, step in enumerate(steps):
        for source in step.sources:
            users[source].append(position)
    for group in _fused_groups(steps, users):
        members = [steps[position] for position in group]
        regions = [step.region for step in members if step.region in automatic]
        if not regions or len({step.call for step in members}) == 1:
            continue
        if not _keeps_order(steps, users, group):
            return regions[0]
    return None


class _Inlined:
    """The steps of a graph and of the bodies that it calls. Inputs are steps that cannot be fused."""

    def __init__(self, module: GraphModule, tangents: frozenset[str]) -> None:
        self.steps: list[_Step] = []
        self._tangents = tangents
        self._calls = 0
        self._add(module, None, "", 0, backward=False)

    def _add(
        self, module: GraphModule, operands: Sequence[Any] | None, region: str, call: int, *, backward: bool
    ) -> Any:
        """Add the nodes of ``module``; ``operands`` are the values of the placeholders of a body. Return its results."""
        found: dict[Node, Any] = {}
        given = iter(operands or ())
        for node in module.graph.nodes:
            if node.op == "output":
                return [found[value] if isinstance(value, Node) else None for value in node.args[0]]
            if node.op == "placeholder" and operands is not None:
                found[node] = next(given)
            elif node.target is INVOKE:
                found[node] = self._call(module, node, found)
            elif node.target is getitem:
                base = found[node.args[0]]
                found[node] = base[node.args[1]] if isinstance(base, list) else base
            else:
                sources = [found[source] for source in node.all_input_nodes]
                positions = [position for position in sources if isinstance(position, int)]
                late = backward or node.name in self._tangents
                late = late or any(self.steps[position].backward for position in positions)
                found[node] = len(self.steps)
                self.steps.append(_Step(node, region, call, late, positions, _is_fusible(node)))
        return None

    def _call(self, module: GraphModule, node: Node, found: dict[Node, Any]) -> Any:
        """Add the body of the call ``node``, and return the values of its results."""
        body = attrgetter(str(node.args[0].target))(module)
        operands = [found[value] if isinstance(value, Node) else None for value in node.args[2:]]
        name = str(node.args[1])
        self._calls += 1
        region = name.removeprefix(BACKWARD).removeprefix("partitioned_fw_")
        return self._add(body, operands, region, self._calls, backward=name.startswith(BACKWARD))


def _name(node: Node) -> str:
    """Return the name of a node's operator without its overload; empty for other nodes."""
    target = node.target
    return target.overloadpacket.__name__ if isinstance(target, OpOverload) else ""


def _is_fusible(node: Node) -> bool:
    """Whether a compiler may compute ``node`` in one kernel with other operators."""
    return bool(_name(node)) and _name(node) not in _BARRIERS and next(_tensors(node), None) is not None


def _fused_groups(steps: Sequence[_Step], users: dict[int, list[int]]) -> Iterator[list[int]]:
    """Yield groups of steps; a kernel only has steps of one group.

    Steps are in one group if one reads the other, or if both read the same memory and neither depends on the other.
    """
    parent = list(range(len(steps)))

    def root(position: int) -> int:
        while parent[position] != position:
            parent[position] = parent[parent[position]]
            position = parent[position]
        return position

    above: list[int] = []
    for position, step in enumerate(steps):
        above.append(0)
        for source in step.sources:
            above[position] |= above[source] | 1 << source
            if step.fusible and _are_together(step, steps[source]):
                parent[root(position)] = root(source)
    for readers in users.values():
        near = [reader for reader in readers if steps[reader].fusible]
        for place, reader in enumerate(near):
            for other in near[max(place - SIBLINGS, 0) : place]:
                if steps[reader].backward is steps[other].backward and not above[reader] >> other & 1:
                    parent[root(reader)] = root(other)
    groups: dict[int, list[int]] = defaultdict(list)
    for position, step in enumerate(steps):
        if step.fusible:
            groups[root(position)].append(position)
    yield from groups.values()


def _are_together(step: _Step, source: _Step) -> bool:
    """Whether both steps can be in one kernel."""
    return source.fusible and step.backward is source.backward


# --- order of sums ------------------------------------------------------------------------------------


def _keeps_order(steps: Sequence[_Step], users: dict[int, list[int]], group: Sequence[int]) -> bool:
    """Whether each sum of a group adds its terms in one order, in whatever kernels the group is computed."""
    # A view that only a library call reads is no part of a kernel.
    alive = [k for k in group if _name(steps[k].node) not in _MOVED or _has_fusible_user(steps, users, k)]
    nodes = [steps[k].node for k in alive]
    kinds = {_kind(node) for node in nodes}
    if "sum" not in kinds and "other" not in kinds:
        return True
    if kinds & {"moved", "other"}:
        return False
    read = [steps[source].node for k in alive for source in steps[k].sources]
    # Each sum is compared with each value, and the layers of a model have few different layouts.
    values = [
        *{
            _layout(value): value for node in dict.fromkeys((*nodes, *read)) for value in _tensors(node)
        }.values()
    ]
    if not all(map(_is_row_major, values)):
        return False
    return all(_sum_keeps_order(node, values) for node in nodes if _kind(node) == "sum")


def _has_fusible_user(steps: Sequence[_Step], users: dict[int, list[int]], position: int) -> bool:
    """Whether a kernel reads the step, perhaps through views."""
    return any(
        steps[user].fusible
        and (_name(steps[user].node) not in _MOVED or _has_fusible_user(steps, users, user))
        for user in users[position]
    )


def _kind(node: Node) -> str:
    """Return "each" (an element on its own), "moved", "sum" or "other"."""
    name = _name(node)
    if name in _REDUCTIONS or name in _NORMS or name in _ROWS_ALONE:
        return "sum"
    if name in _MOVED:
        return "moved"
    tags = node.target.tags if isinstance(node.target, OpOverload) else ()
    return "each" if name in _IN_PLACE or torch.Tag.pointwise in tags else "other"


def _tensors(node: Node) -> Iterator[torch.Tensor]:
    """Yield the tensors that a node computes."""
    value = node.meta.get("val")
    for item in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(item, torch.Tensor):
            yield item


def _size(value: int | torch.SymInt) -> Any:
    """Return a size as a number or a symbolic expression. Comparing these adds no guard."""
    return value.node.expr if isinstance(value, torch.SymInt) else value


def _layout(value: torch.Tensor) -> tuple[Any, ...]:
    """Return what the order of sums depends on."""
    return tuple(map(_size, value.shape)), tuple(map(_size, value.stride())), value.dtype


def _product(sizes: Sequence[int | torch.SymInt]) -> Any:
    return sympy.expand(prod(map(_size, sizes)))


def _is_row_major(value: torch.Tensor) -> bool:
    """Whether the elements of a tensor lie in row-major order. An expanded tensor is as good."""
    shape, strides = list(map(_size, value.shape)), list(map(_size, value.stride()))
    expected: Any = 1
    for size, stride in reversed(list(zip(shape, strides, strict=True))):
        if size == 1 or stride == 0:
            continue
        if sympy.expand(stride - expected) != 0:
            return False
        expected *= size
    return True


def _sum_keeps_order(node: Node, values: Sequence[torch.Tensor]) -> bool:
    """Whether the sums of ``node`` are over contiguous rows, or over all rows of a matrix."""
    source: Any = node.args[0]
    shape = list(source.meta["val"].shape)
    name = _name(node)
    if not shape:
        return False
    if name in _NORMS:
        normalized = node.args[2] if name.endswith("_backward") else node.args[1]
        if name == "_fused_rms_norm_backward":
            normalized = shape[-1:]
        backward = name.endswith("_backward")
        return len(normalized) == 1 and _is_row(shape, values) and (not backward or _is_column(shape, values))
    dims = _dims(node, len(shape))
    wide = [dim for dim, size in enumerate(shape) if _size(size) != 1]
    summed = [dim for dim in wide if dim in dims]
    if not summed:
        return True
    if summed == wide[-1:] and summed == [len(shape) - 1]:
        return _is_row(shape, values)
    return summed == wide[:-1] and wide[-1] == len(shape) - 1 and _is_column(shape, values)


def _dims(node: Node, rank: int) -> set[int]:
    """Return the dimensions over which a reduction is."""
    given: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
    if _name(node) in {"_softmax_backward_data", "_log_softmax_backward_data"}:
        given = node.args[2]
    if isinstance(given, int):
        given = [given]
    return {dim % rank for dim in given} if given else set(range(rank))


def _is_row(shape: Sequence[Any], values: Sequence[torch.Tensor]) -> bool:
    """Whether a sum along the last dimension has one order."""
    size, rows = shape[-1], _product(shape[:-1])
    if not isinstance(size, int) or size >= LONGEST or (rows.is_Integer and rows < ROWS):
        return False
    short = size % FEW_LANES == 0 and all(value.dtype.itemsize >= 4 for value in values)
    return size % LANES == 0 or short


def _is_column(shape: Sequence[Any], values: Sequence[torch.Tensor]) -> bool:
    """Whether a sum over all dimensions but the last has one order.

    A tensor that is constant in some of the summed dimensions splits the loop over the rows.
    """
    whole = {sympy.Integer(1), _product(shape[:-1])}
    return (
        isinstance(shape[-1], int)
        and shape[-1] >= ROWS
        and all(
            _product(value.shape[:-1]) in whole and 0 not in map(_size, _strides_of_rows(value))
            for value in values
        )
    )


def _strides_of_rows(value: torch.Tensor) -> list[Any]:
    """Return the strides of all dimensions but the last that have more than one element."""
    pairs = zip(value.shape[:-1], value.stride()[:-1], strict=True)
    return [stride for size, stride in pairs if _size(size) != 1]
