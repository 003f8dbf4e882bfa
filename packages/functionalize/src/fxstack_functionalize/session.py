"""One tracing session: the modes that are on, and the tensors that go in and out of them.

From outside in: autograd, functionalisation, proxy recording, fake tensors. The captured graph runs exactly once;
what it mutates and aliases is read off the functional tensors afterwards, so no separate analysis run is needed.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    decompose,
    disable_proxy_modes_tracing,
    track_tensor_tree,
)

from fxstack_functionalize.engine import ModeEngine, current_value
from fxstack_functionalize.rng import random_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from torch.fx import Node

    from fxstack_functionalize.engine import Engine
    from fxstack_functionalize.inputs import Captured
    from fxstack_functionalize.tracer import AtenTracer

    Decompositions = Mapping[Any, Callable[..., Any]]


class _AsNonLeaf(torch.autograd.Function):
    """Give a functional tensor the gradient of ``leaf`` without being a leaf, or a view of one, itself."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor, box: list[torch.Tensor]) -> torch.Tensor:  # noqa: ARG004
        return box[0]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override] # noqa: ARG004
        return grad, None


@dataclass(slots=True)
class TracedInput:
    """An input inside the session.

    ``argument`` is what the captured graph gets; ``leaf`` what gradients are taken for (the same tensor unless the
    example is not a leaf); ``inner`` the tensor under ``argument`` before anything ran.
    """

    node: Node | None
    argument: Any
    leaf: torch.Tensor | None = None
    inner: torch.Tensor | None = None
    version: int = 0
    grad_fn: Any = None
    base: TracedInput | None = None
    """The base input that ``argument`` is a view of, where inputs were merged."""


@dataclass(slots=True)
class Session:
    """The state of one trace."""

    captured: Captured
    engine: Engine
    tracer: AtenTracer
    decompositions: Decompositions
    inputs: list[TracedInput] = field(default_factory=list)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Turn on everything between autograd and the fake tensors."""
        proxy_mode = ProxyTorchDispatchMode(self.tracer, "symbolic", False, False, False)
        grad_mode = torch.is_grad_enabled()
        with ExitStack() as stack:
            stack.callback(torch._C._set_grad_enabled, grad_mode)
            stack.enter_context(self.captured.fake_mode)
            self._add_placeholders()
            if self._symbolic():
                stack.enter_context(enable_python_dispatcher())
            stack.enter_context(_no_autocast_cache())
            stack.enter_context(proxy_mode)
            exact = isinstance(self.engine, ModeEngine)
            rules = random_rules(self.tracer, exact=exact)
            stack.enter_context(decompose({**rules, **self.decompositions}))
            self._wrap_inputs()
            stack.enter_context(self.engine.active())
            self._make_leaves()
            yield

    def _symbolic(self) -> bool:
        return any(
            isinstance(spec.fake, torch.SymInt)
            or (isinstance(spec.fake, torch.Tensor) and spec.fake._has_symbolic_sizes_strides)
            for spec in self.captured.inputs
        )

    def _add_placeholders(self) -> None:
        for spec in self.captured.inputs:
            proxy = self.tracer.create_proxy("placeholder", spec.name, (), {})
            value = spec.fake
            if isinstance(value, torch.Tensor):
                with torch.no_grad():
                    value = value.detach()
            track_tensor_tree(value, proxy, constant=None, tracer=self.tracer)
            inner = value if isinstance(value, torch.Tensor) else None
            self.inputs.append(TracedInput(proxy.node, value, inner=inner))

    def _wrap_inputs(self) -> None:
        counters: set[int] = set()
        for traced in self.inputs:
            if traced.inner is None:
                continue
            traced.argument = self.engine.wrap(traced.inner)
            if traced.inner.layout is torch.strided:
                storage = traced.inner.untyped_storage()._cdata
                if storage in counters:
                    # Views of one tensor share a version counter; count each input's own changes.
                    traced.argument = traced.argument.data
                counters.add(storage)

    def _make_leaves(self) -> None:
        for spec, traced in zip(self.captured.inputs, self.inputs, strict=True):
            if traced.inner is None:
                continue
            if spec.fake.requires_grad:
                traced.leaf = traced.argument.requires_grad_()
                if not spec.fake.is_leaf:
                    with torch.enable_grad(), disable_proxy_modes_tracing():
                        fresh = self.engine.wrap(traced.inner)
                        traced.argument = _AsNonLeaf.apply(traced.leaf, [fresh])
            if spec.members is not None:
                self._derive_members(traced, spec.members)
        for traced in self.inputs:
            if traced.inner is None:
                continue
            traced.version = traced.argument._version
            traced.grad_fn = traced.argument.grad_fn

    def _derive_members(self, base: TracedInput, members: Sequence[int]) -> None:
        for index in members:
            fake = self.captured.inputs[index].fake
            member = self.inputs[index]
            member.base = base
            view = base.argument.as_strided(fake.shape, fake.stride(), fake.storage_offset())
            # .data: the same memory with a version counter of its own, to count this member's changes.
            member.argument = view.data

    def new_placeholder(self, name: str, value: torch.Tensor) -> Node:
        """Add a placeholder after the existing ones, for a tensor that the trace only now turns out to need."""
        graph = self.tracer.graph
        last = graph.find_nodes(op="placeholder")[-1] if graph.nodes else graph._root
        with graph.inserting_after(last), disable_proxy_modes_tracing():
            proxy = self.tracer.create_proxy("placeholder", name, (), {})
            track_tensor_tree(value, proxy, constant=None, tracer=self.tracer)
        return proxy.node

    def value(self, wrapped: torch.Tensor) -> torch.Tensor:
        """Return the plain tensor under a functional one, after all mutations."""
        return current_value(self.engine, wrapped)

    def node_of(self, value: Any) -> Any:
        """Return the node that computes ``value`` (a plain tensor or symbol), or the constant that it is."""
        found = self.tracer.unwrap_proxy(value)
        if isinstance(found, torch.fx.Proxy):
            return found.node
        return self.tracer.create_arg(found)


@contextmanager
def _no_autocast_cache() -> Iterator[None]:
    """Casts must be recorded each time: a cached one would belong to another graph."""
    enabled = torch.is_autocast_cache_enabled()
    torch.set_autocast_cache_enabled(False)
    try:
        yield
    finally:
        torch.set_autocast_cache_enabled(enabled)
