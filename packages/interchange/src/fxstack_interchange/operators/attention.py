"""The score functions of one ``flex_attention`` call, as ATen graphs over 0-d tensors.

A compiler can inline such a graph into a kernel. ``score`` takes ``(score, b, h, m, n, *buffers, *numbers)``.
``mask`` takes the same arguments without the score. ``gradient`` takes ``(score, b, h, m, n, grad, *buffers,
*numbers)``. It returns the gradient of the score. Then follow, for each buffer element that receives a
gradient, the indices of the element and the value to add. ``numbers`` are integers of the program, as 0-d
tensors.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Any, cast

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_interchange.fake_mode import make_fake_mode
from fxstack_interchange.operators.flex import POSITIONS
from fxstack_interchange.torch_compat import FakeTensorMode

Modifier = Callable[..., torch.Tensor]

aten = torch.ops.aten
TRUE_CONSTANTS = frozenset({aten.ones.default, aten.new_ones.default, aten.ones_like.default})
INDEX_PUTS = frozenset(
    {
        aten.index_put.default,
        aten.index_put_.default,
        aten._index_put_impl_.default,
        aten._unsafe_index_put.default,
    }
)
NOTHING = frozenset({aten.new_zeros.default, aten.zeros.default, aten.zeros_like.default})


class UnsupportedModifierError(Exception):
    """A score or mask function cannot be inlined: it does not compute one number, or its gradient is more
    than additions to elements of buffers.

    The caller then uses ordinary operators on all scores.
    """


@dataclass(frozen=True, slots=True)
class Addition:
    """A gradient that is added to one element of a buffer."""

    buffer: int
    """The position of the buffer among the buffers of the call."""
    indices: int
    """Number of dimensions of the buffer, and of the indices of the element."""


@dataclass(frozen=True)
class Attention:
    """The graphs of one attention (see the module docstring) and its options.

    ``mask`` is None if no key is masked. ``blocks`` are the block sizes of a block mask; None if there is no
    block mask.
    """

    score: GraphModule
    mask: GraphModule | None
    gradient: GraphModule | None
    additions: tuple[Addition, ...]
    scale: float
    blocks: tuple[int, int] | None

    @property
    def key(self) -> str:
        """Return a key that is equal for attentions with equal graphs and options. It becomes the operator's name."""
        graphs = [None if g is None else _text(g) for g in (self.score, self.mask, self.gradient)]
        text = repr((graphs, self.additions, self.scale, self.blocks))
        return hashlib.sha256(text.encode()).hexdigest()[:24]


def _text(module: GraphModule) -> str:
    """Return the code of ``module`` and the values of its constants.

    The code refers to constants only by generated names, so it does not distinguish their values.
    """
    constants_read = (n for n in module.graph.nodes if n.op == "get_attr")
    constants = [(str(n.target), repr(getattr(module, str(n.target)))) for n in constants_read]
    return f"{module.code}{constants}"


@dataclass(frozen=True, slots=True)
class Operand:
    """A buffer of a score or mask function. ``gradient``: the buffer requires a gradient."""

    rank: int
    dtype: torch.dtype
    gradient: bool


def trace_attention(
    score: Modifier,
    mask: Modifier,
    *,
    operand_positions: tuple[Sequence[int], Sequence[int]],
    buffers: Sequence[Operand],
    numbers: int,
    device: torch.device,
    scale: float,
    blocks: tuple[int, int] | None,
    gradients: bool,
) -> Attention:
    """Return the graphs of ``score(score, b, h, m, n, *captured)`` and ``mask(b, h, m, n, *captured)``.

    ``operand_positions`` lists for each function the positions of its arguments ``captured`` in ``(*buffers, *numbers)``.
    With ``gradients``, also trace the gradient graph.

    Raises:
        UnsupportedModifierError: a function does not compute one number from numbers and elements of buffers.
    """
    tracer = _Tracer(buffers, numbers, device)
    results: list[Attention | BaseException] = []

    def trace() -> None:  # A separate thread has none of the tracing modes that surround this call.
        """Trace all functions, and append the description or the error to ``results``."""
        try:
            score_graph = tracer.score(score, operand_positions[0])
            mask_graph = tracer.mask(mask, operand_positions[1])
            gradient, additions = tracer.gradient(score, operand_positions[0]) if gradients else (None, ())
            results.append(
                Attention(score_graph, mask_graph, gradient, additions, scale, blocks if mask_graph else None)
            )
        except Exception as error:
            results.append(error)

    thread = Thread(target=trace)
    thread.start()
    thread.join()
    if isinstance(outcome := results[0], Attention):
        return outcome
    raise UnsupportedModifierError(str(outcome)) from outcome


@dataclass(frozen=True, slots=True)
class _Tracer:
    """Traces score and mask functions on 0-d fake tensors."""

    buffers: Sequence[Operand]
    numbers: int
    device: torch.device

    def score(self, function: Modifier, operand_positions: Sequence[int]) -> GraphModule:
        """Return the graph of a score modifier on one score.

        ``operand_positions``: the positions in ``(*buffers, *numbers)`` of the tensors that the modifier captures.
        """
        mode, (score, *rest) = self._examples()

        def call(score: object, *rest: object) -> Any:
            captured = rest[POSITIONS:]
            return function(score, *rest[:POSITIONS], *(captured[k] for k in operand_positions))

        return _require_scalars(_trace(mode, call, (score.detach(), *rest)))

    def mask(self, function: Modifier, operand_positions: Sequence[int]) -> GraphModule | None:
        """Return the graph of a mask at one position; None if the mask allows every position."""
        mode, (_, *rest) = self._examples()

        def call(*rest: object) -> Any:
            captured = rest[POSITIONS:]
            return function(*rest[:POSITIONS], *(captured[k] for k in operand_positions))

        module = _require_scalars(_trace(mode, call, rest))
        result = module.graph.output_node().args[0]
        always = getattr(result, "target", None) in TRUE_CONSTANTS
        return None if always else module

    def gradient(
        self, function: Modifier, operand_positions: Sequence[int]
    ) -> tuple[GraphModule, tuple[Addition, ...]]:
        """Return the graph of the gradients of one score, and how its results are added to the buffers' gradients."""
        mode, examples = self._examples()
        with mode:
            grad = torch.zeros((), device=self.device)
        differentiated = [
            k for k, buffer in enumerate(self.buffers) if buffer.gradient and k in operand_positions
        ]

        def call(score: Any, *rest: Any) -> Any:
            """Return the gradient of the score, then those of the buffers (None: a buffer without gradient)."""
            positions, grad_output = rest[:POSITIONS], rest[POSITIONS]
            captured = rest[POSITIONS + 1 :]
            value = function(score, *positions, *(captured[k] for k in operand_positions))
            sources = [score, *(captured[k] for k in differentiated)]
            if not value.requires_grad:
                return [torch.zeros_like(grad_output), *(None for _ in differentiated)]
            gradients = torch.autograd.grad(value, sources, grad_output.to(value.dtype), allow_unused=True)
            score_gradient = torch.zeros_like(grad_output) if gradients[0] is None else gradients[0]
            return [score_gradient, *gradients[1:]]

        arguments = (*examples[: POSITIONS + 1], grad, *examples[POSITIONS + 1 :])
        return _replace_by_additions(_trace(mode, call, arguments), differentiated, self.buffers)

    def _examples(self) -> tuple[FakeTensorMode, list[torch.Tensor]]:
        """Return a fake mode and scalar examples: the score, its positions, the buffers and the numbers."""
        mode = make_fake_mode()
        device = self.device
        with mode:
            score = torch.zeros((), device=device, requires_grad=True)
            positions = [torch.zeros((), dtype=torch.int64, device=device) for _ in range(POSITIONS)]
            buffers = [
                torch.zeros((2,) * b.rank, dtype=b.dtype, device=device, requires_grad=b.gradient)
                for b in self.buffers
            ]
            numbers = [torch.zeros((), dtype=torch.int64, device=device) for _ in range(self.numbers)]
        return mode, [score, *positions, *buffers, *numbers]


def _trace(mode: FakeTensorMode, call: Callable[..., Any], arguments: Sequence[Any]) -> GraphModule:
    """Return the graph of ``call`` at these arguments, without dead code."""
    with mode:
        module: GraphModule = make_fx(call)(*arguments)
    module.graph.eliminate_dead_code()
    module.recompile()
    return module


def _require_scalars(module: GraphModule) -> GraphModule:
    """Return ``module`` unchanged. Every value in it must be a 0-d tensor.

    Raises:
        UnsupportedModifierError: a value is not a 0-d tensor.
    """
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if node.op == "call_function" and not _is_number(value):
            raise UnsupportedModifierError(f"{node.target} returns a value that is not a 0-d tensor")
    return module


def _is_number(value: object) -> bool:
    return isinstance(value, torch.Tensor) and not value.dim()


def _replace_by_additions(
    module: GraphModule, differentiated: Sequence[int], buffers: Sequence[Operand]
) -> tuple[GraphModule, tuple[Addition, ...]]:
    """Return ``module`` with each buffer gradient replaced by the single-element additions that form it."""
    output = module.graph.output_node()
    first, *rest = cast("list[Any]", output.args[0])
    results, additions = [first], []
    for buffer, gradient in zip(differentiated, rest, strict=True):
        for indices, value in _additions_of(gradient, buffers[buffer].rank):
            results += [*indices, value]
            additions.append(Addition(buffer, len(indices)))
    output.args = (tuple(results),)
    # ``eliminate_dead_code`` keeps in-place nodes, so this loop erases unused nodes itself.
    for node in reversed(list(module.graph.nodes)):
        if node.op == "call_function" and not node.users:
            module.graph.erase_node(node)
    module.recompile()
    return _require_scalars(module), tuple(additions)


def _additions_of(gradient: Any, rank: int) -> list[tuple[list[Node], Node]]:
    """Return (indices, value) of each single-element addition whose sum is ``gradient``.

    Raises:
        UnsupportedModifierError: another operator computes the gradient.
    """
    if gradient is None:
        return []
    if gradient.target is aten.add.Tensor and len(gradient.args) == 2 and not gradient.kwargs:
        return [part for arg in gradient.args for part in _additions_of(arg, rank)]
    if rank == 0:
        return [([], gradient)]
    args = gradient.args
    is_accumulation = gradient.target in INDEX_PUTS and len(args) >= 4 and args[3] is True
    if is_accumulation and getattr(args[0], "target", None) in NOTHING:
        indices = [index for index in args[1] if index is not None]
        if len(indices) == rank:
            return [(indices, args[2])]
    raise UnsupportedModifierError(
        f"the gradient of a buffer is computed by {gradient.target}, not by additions to single elements"
    )
