"""Convert the caller's example inputs to fake tensors, and lift the module's tensors to inputs.

Parameters, buffers and tensor attributes that the captured graph reads are appended to the inputs, so their
gradients and mutations are handled like those of other inputs. Example tensors may be real or fake; fake
tensors keep their mode and symbols.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from keyword import iskeyword
from operator import attrgetter
from typing import Any, cast

import sympy
import torch
from torch.fx import GraphModule
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.regions.table import RegionTable
from fxstack_functionalize.torch_compat import FakeTensor, FakeTensorMode
from fxstack_interchange import InputKind
from fxstack_interchange.fake_mode import make_fake_mode

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True, slots=True)
class CapturedInput:
    """One input of the captured graph, or one tensor lifted from its module (``target`` is its path).

    ``fake`` is the tensor that the tracer sees; ``real`` is the lifted tensor (None for placeholders).
    """

    name: str
    kind: InputKind
    fake: Any
    target: str | None = None
    real: torch.Tensor | None = None
    members: tuple[int, ...] | None = None
    """For an appended base: the inputs that are views of it."""
    is_root: bool = False
    """For a base: whether it is the root that autograd knows, rather than the flat storage."""
    size_of: tuple[int, int] | None = None
    """For an appended symbol: the input and the dimension whose size it is."""


@dataclass(frozen=True, slots=True)
class Captured:
    """A captured graph and all data that tracing needs."""

    graph_module: GraphModule
    inputs: tuple[CapturedInput, ...]
    owned: Mapping[str, int]
    """The input number of every attribute path that the graph or its modules read. Tied paths share one."""
    fake_mode: FakeTensorMode
    keep_views: bool = False
    """Whether an input that is a view and gains a history is also a view in the trace."""
    needs_modes: bool = False
    """Whether only the general functionalisation can trace the graph (``ModeEngine``)."""
    equal_draws: bool = False
    """Whether nested graphs draw from an explicit state (``random.nested_draws``)."""
    flat_views: bool = False
    """Whether views without an exact inverse become ``as_strided`` of their root (``inverses``)."""
    zero_tensors: bool = False
    """Whether a derivative makes tensors that autograd knows to be zero (``python_kernels.zeros_rule``)."""

    @property
    def placeholder_count(self) -> int:
        """Return the number of the captured graph's own inputs. Lifted tensors, symbols and bases follow."""
        return len(self.graph_module.graph.find_nodes(op="placeholder"))

    @property
    def lifted(self) -> tuple[torch.Tensor, ...]:
        return tuple(spec.real for spec in self.inputs if spec.real is not None)


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """The kind of graph to make from a captured graph."""

    gradients: bool
    keep_mutations: bool = True
    replay_views: bool = True
    whole_attention: tuple[str, ...] = ()
    """See ``AotOptions``."""
    regions: RegionTable | None = field(default=None, repr=False, compare=False)
    """The shared regions of the compilation; None if all regions are traced in line."""


class RestartTraceError(Exception):
    """The trace has to restart with the inputs or views that ``change`` returns, represented differently."""

    def __init__(self, change: Callable[[Captured], Captured]) -> None:
        self.change = change
        super().__init__()


def fake_mode_of(values: Sequence[Any], results: Iterable[Any] = ()) -> FakeTensorMode:
    """Return the mode of the fake tensors among ``values``; a new mode if there are none.

    If ``values`` have symbolic numbers but no tensors, return the mode of a tensor among ``results`` with the
    same ShapeEnv.
    """
    fakes = [value for value in values if isinstance(value, FakeTensor)]
    if fakes:
        return fakes[0].fake_mode
    env = next((v.node.shape_env for v in values if isinstance(v, SYMBOLIC)), None)
    for value in () if env is None else results:
        if isinstance(value, FakeTensor) and value.fake_mode.shape_env is env:
            return value.fake_mode
    return make_fake_mode(ShapeEnv() if env is None else env, static_shapes=True)


def prepare(graph_module: GraphModule, example_inputs: Sequence[Any]) -> Captured:
    """Make every input fake, and lift the tensors that the graph's module owns.

    Raises:
        TypeError: if ``graph_module`` is no graph module, or ``example_inputs`` no sequence.
        ValueError: if the number of example inputs differs from the number of placeholders.
    """
    _check_types(graph_module, example_inputs)
    placeholders = graph_module.graph.find_nodes(op="placeholder")
    if len(placeholders) != len(example_inputs):
        names = ", ".join(node.name for node in placeholders)
        raise ValueError(
            f"the graph has {len(placeholders)} inputs ({names}), "
            f"but {len(example_inputs)} example inputs were given"
        )
    paths = _owned_tensors(graph_module)
    # Reversed twice: a tensor with several paths keeps the first one, in the order of first use.
    tensors = {id(tensor): (path, tensor) for path, tensor in reversed(paths.items())}
    lifted = list(reversed(tensors.values()))
    results = (node.meta.get("val") for node in graph_module.graph.nodes)
    mode = fake_mode_of([*example_inputs, *(tensor for _, tensor in lifted)], results)
    inputs = [
        CapturedInput(node.name, _kind_of(value), to_fake(mode, value))
        for node, value in zip(placeholders, example_inputs, strict=True)
    ]
    position = {id(tensor): len(inputs) + i for i, (_, tensor) in enumerate(lifted)}
    for path, tensor in lifted:
        name = _new_identifier(path, {spec.name for spec in inputs})
        kind = _kind_of(tensor, InputKind.BUFFER)
        inputs.append(CapturedInput(name, kind, to_fake(mode, tensor), path, tensor))
    owned = {path: position[id(tensor)] for path, tensor in paths.items()}
    inputs += _unbound_symbols(inputs)
    return Captured(graph_module, tuple(inputs), owned, mode)


def _new_identifier(path: str, used: set[str]) -> str:
    """Return a name for the input of a parameter: for ``0.weight`` (a part of ``nn.Sequential``) ``_0_weight``."""
    name = re.sub(r"\W", "_", path)
    name = name if name.isidentifier() and not iskeyword(name) else f"_{name}"
    candidates = (name if number == 0 else f"{name}_{number}" for number in count())
    return next(candidate for candidate in candidates if candidate not in used)


def _check_types(graph_module: object, example_inputs: object) -> None:
    """Raise TypeError for arguments that are no graph module and no sequence of examples."""
    if not isinstance(graph_module, torch.fx.GraphModule):
        raise TypeError(
            f"a captured graph is a torch.fx.GraphModule, not {type(graph_module).__name__}.\n"
            "  fix: aot_function and aot_module take functions and modules; torch.fx.symbolic_trace makes a graph of one"
        )
    if not isinstance(example_inputs, (list, tuple)):
        raise TypeError(
            f"example inputs are a list or tuple, not {type(example_inputs).__name__}.\n"
            "  fix: give one value for each input of the graph"
        )


def _unbound_symbols(inputs: Sequence[CapturedInput]) -> list[CapturedInput]:
    """Make an input of every symbol that only a tensor's size binds: graphs need all symbols as inputs."""
    bound = {spec.fake.node.expr for spec in inputs if isinstance(spec.fake, torch.SymInt)}
    symbols = []
    for index, spec in enumerate(inputs):
        if not isinstance(spec.fake, torch.Tensor):
            continue
        for dim, size in enumerate(spec.fake.shape):
            if not isinstance(size, torch.SymInt) or size.node.expr in bound:
                continue
            if isinstance(size.node.expr, sympy.Symbol):
                bound.add(size.node.expr)
                name = f"size_{size.node.expr}"
                symbols.append(CapturedInput(name, InputKind.SYMBOL, size, size_of=(index, dim)))
    return symbols


def to_fake(mode: FakeTensorMode, value: object) -> Any:
    """Return a fake tensor for a tensor; another value unchanged."""
    if isinstance(value, FakeTensor):
        return _without_inference_mode(value)
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_nested or value.is_quantized:
        kind = "nested" if value.is_nested else "quantized"
        raise _unsupported(f"one of the inputs is a {kind} tensor")
    try:
        # Sizes of real tensors are constants: callers that want symbolic sizes pass fake tensors.
        fake = _without_inference_mode(mode.from_tensor(value, static_shapes=True))
    except Exception as error:
        raise _unsupported(f"an input of type {type(value).__name__} has no fake form") from error
    fake.item_memo = None  # since torch 2.15 the memo is the present number of ``value``
    return fake


def _without_inference_mode(fake: FakeTensor) -> FakeTensor:
    """Return an ordinary tensor on the memory of an inference tensor: traces run without inference mode."""
    if not (fake.is_inference() and torch.is_inference_mode_enabled()):
        return fake
    with torch.inference_mode(mode=False), torch.no_grad(), fake.fake_mode:
        ordinary = torch.empty(0, dtype=fake.dtype, device=fake.device)
        ordinary.set_(fake.untyped_storage(), fake.storage_offset(), fake.size(), fake.stride())
        ordinary = torch_compat.neg_view(ordinary) if fake.is_neg() else ordinary
        ordinary = torch_compat.conj_view(ordinary) if fake.is_conj() else ordinary
        return cast("FakeTensor", ordinary.requires_grad_(fake.requires_grad))


def _unsupported(subject: str) -> UnsupportedGraphError:
    """Return the error about an input that has no fake form.

    ``subject``: a sentence, for example ``one of the inputs is a sparse tensor``.
    """
    return UnsupportedGraphError(
        subject,
        why="tracing works on tensors without data, which torch has no model of for this kind",
        fix="convert it to a dense tensor outside the compiled function, or run the graph in eager",
    )


def _kind_of(value: object, otherwise: InputKind = InputKind.USER_INPUT) -> InputKind:
    """Return the kind of an input: a symbol, a parameter, or ``otherwise``."""
    if isinstance(value, torch.SymInt):
        return InputKind.SYMBOL
    return InputKind.PARAMETER if isinstance(value, torch.nn.Parameter) else otherwise


def _owned_tensors(graph_module: GraphModule) -> dict[str, torch.Tensor]:
    """Return the tensors that get_attr and call_module nodes may read, by path, in order of first use."""
    tensors: dict[str, torch.Tensor] = {}
    for node in graph_module.graph.nodes:
        if node.op == "get_attr":
            value = attrgetter(node.target)(graph_module)
            if isinstance(value, torch.Tensor):
                tensors.setdefault(node.target, value)
        elif node.op == "call_module":
            module = graph_module.get_submodule(node.target)
            named = [
                *module.named_parameters(node.target, remove_duplicate=False),
                *module.named_buffers(node.target, remove_duplicate=False),
            ]
            for path, tensor in named:
                tensors.setdefault(path, tensor)
    return tensors
