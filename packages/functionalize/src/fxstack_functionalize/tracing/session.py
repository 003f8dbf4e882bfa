"""One tracing session: the active modes, and the tensors that enter and leave them.

The layers from outside to inside: autograd, functionalisation, proxy recording, fake tensors. The captured
graph runs exactly once. Mutations and aliases are read from the functional tensors afterwards, so no separate
analysis run is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    PythonKeyTracer,
    decompose,
    disable_proxy_modes_tracing,
    track_tensor_tree,
)

from fxstack_functionalize import torch_compat
from fxstack_functionalize.metadata.replay import Step, view_steps
from fxstack_functionalize.operators.masked_values import MASKED_VALUES
from fxstack_functionalize.operators.python_kernels import ZEROS, exact_kernels, zeros_rule
from fxstack_functionalize.random.functional_random import FunctionalRandomMode, state_input
from fxstack_functionalize.recording import RecordingMode
from fxstack_functionalize.torch_compat import MakefxTracer as _MakefxTracer
from fxstack_functionalize.torch_compat import enable_python_dispatcher
from fxstack_functionalize.torch_compat import set_make_fx_tracer as _set_make_fx_tracer
from fxstack_functionalize.tracer.aten_tracer import AtenTracer, track
from fxstack_functionalize.tracer.engine import Engine, ModeEngine, current_value, version_of
from fxstack_functionalize.tracer.exact_random import random_rules
from fxstack_functionalize.tracer.inputs import Captured, CapturedInput
from fxstack_functionalize.tracer.symbols import has_symbols
from fxstack_functionalize.views.differentiable_bases import derive_view, whole_view

Decompositions = Mapping[Any, Callable[..., Any]]


class _AsNonLeaf(torch.autograd.Function):
    """Give a functional tensor the gradient of ``leaf``. The result is no leaf and no view of a leaf."""

    @staticmethod
    def forward(ctx: object, leaf: torch.Tensor, box: list[torch.Tensor]) -> torch.Tensor:  # noqa: ARG004
        return box[0]

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # noqa: ARG004
        return grad, None


@dataclass(slots=True)
class TracedInput:
    """An input inside the session.

    ``argument``: the tensor that the captured graph gets. ``leaf``: the tensor that gets the gradient
    (``argument`` itself unless the example is not a leaf). ``inner``: the tensor under ``argument`` before
    the graph runs.
    """

    node: Node | None
    argument: Any
    leaf: torch.Tensor | None = None
    inner: torch.Tensor | None = None
    version: int = 0
    grad_fn: Any = None
    root: torch.Tensor | None = None
    """The base of ``argument``, if the example's base has no gradient but the example has or gets one."""
    base: TracedInput | None = None
    """The base input of ``argument``, if inputs were merged."""
    rooted: bool = False
    """Whether autograd knows ``argument`` as a view of this base."""
    shares: bool = False
    """Whether an earlier input has the same storage."""
    steps: tuple[Step, ...] = ()
    """The views that lead to ``argument`` before the graph runs."""


@dataclass(slots=True)
class Session:
    """The state of one trace: its inputs, its engine and its tracer. ``recording`` enters all modes."""

    captured: Captured
    engine: Engine
    tracer: AtenTracer
    decompositions: Decompositions
    inputs: list[TracedInput] = field(default_factory=list)
    inference: bool = False
    """Whether inference mode is on around the trace. In inference mode nothing gets a history."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Enter all modes between autograd and the fake tensors."""
        grad_mode = torch.is_grad_enabled()
        self.inference = torch.is_inference_mode_enabled()
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(mode=False))
            torch_compat.set_grad_enabled(grad_mode)
            stack.callback(torch_compat.set_grad_enabled, grad_mode)
            stack.callback(torch.set_default_dtype, torch.get_default_dtype())
            # Saved-tensor hooks apply to saved tensors of the compiled forward, not of the trace.
            set_tracing = torch_compat.saved_tensors_hooks_set_tracing
            stack.callback(set_tracing, set_tracing(True))
            stack.enter_context(self.captured.fake_mode)
            self._add_placeholders()
            if self._needs_dispatcher():
                stack.enter_context(enable_python_dispatcher())
                stack.enter_context(exact_kernels())
            # Casts are shared within a trace, but not with what runs before and after.
            torch.clear_autocast_cache()
            stack.callback(torch.clear_autocast_cache)
            stack.enter_context(self._proxy_mode(stack))
            self._wrap_inputs()
            stack.enter_context(self.engine.active())
            self._make_leaves()
            yield

    def _proxy_mode(self, stack: ExitStack) -> AbstractContextManager[Any]:
        """Return the recording mode, and set the state that higher-order operators need to trace branches."""
        exact = isinstance(self.engine, ModeEngine)
        zeros = {ZEROS: zeros_rule(ready=self._needs_dispatcher())}
        table = {**MASKED_VALUES, **zeros, **random_rules(self.tracer, exact=exact), **self.decompositions}
        is_pure = state_input(self.captured.graph_module.graph) is not None
        mode = (FunctionalRandomMode if is_pure else RecordingMode)(self.tracer, table)
        if exact:
            stack.enter_context(_set_make_fx_tracer(self._make_fx(mode, table)))
        opened = ExitStack()
        opened.enter_context(mode)
        opened.enter_context(decompose(table))
        return opened

    def _make_fx(self, mode: ProxyTorchDispatchMode, table: Decompositions) -> _MakefxTracer:
        """Return the tracer with which higher-order operators trace their branches."""
        tracer = _MakefxTracer(
            decomposition_table=table,
            tracing_mode="symbolic",
            _allow_non_fake_inputs=True,
            pre_dispatch=False,
            record_module_stack=False,
            _allow_fake_constant=False,
            _error_on_data_dependent_ops=False,
        )
        tracer.fake_tensor_mode = self.captured.fake_mode
        tracer.fx_tracer = PythonKeyTracer()
        tracer.proxy_mode = mode
        return tracer

    def _needs_dispatcher(self) -> bool:
        """Whether the Python dispatcher is needed: a size is symbolic, or a derivative makes zeros."""
        nodes = self.captured.graph_module.graph.nodes
        return (
            self.captured.zero_tensors
            or any(has_symbols(spec.fake) for spec in self.captured.inputs)
            or any(has_symbols(node.meta.get("val")) for node in nodes)
        )

    def _add_placeholders(self) -> None:
        """Make a placeholder for each input, and the plain tensor that the modes see."""
        with torch.no_grad():
            # no detach(): what the graph changes has not changed in a further trace
            values = [
                spec.fake.data if isinstance(spec.fake, torch.Tensor) else spec.fake
                for spec in self.captured.inputs
            ]
        for spec, value in zip(self.captured.inputs, values, strict=True):
            node = self.tracer.graph.create_node("placeholder", spec.name)
            track(self.tracer, value, node)
            inner = value if isinstance(value, torch.Tensor) else None
            self.inputs.append(TracedInput(node, value, inner=inner))

    def _wrap_inputs(self) -> None:
        """Give each tensor input its traced argument. Mark an input that shares its storage with an earlier one."""
        counters: set[int] = set()
        for traced in self.inputs:
            if traced.inner is None:
                continue
            if traced.inner.layout is torch.strided:
                storage = traced.inner.untyped_storage()._cdata
                traced.shares = storage in counters
                counters.add(storage)
            traced.argument = self._wrapped(traced)

    def _wrapped(self, traced: TracedInput) -> torch.Tensor:
        """Wrap an input. An input on shared storage gets its own version counter, to count its changes."""
        wrapped = self.engine.wrap(traced.inner)
        return self.engine.with_own_version(wrapped) if traced.shares else wrapped

    def _make_leaves(self) -> None:
        """Make the tensors that get gradients, then the members of merged bases. Then record the initial state."""
        for spec, traced in zip(self.captured.inputs, self.inputs, strict=True):
            if traced.inner is None:
                continue
            if spec.fake.requires_grad:
                self._make_leaf(spec.fake, traced)
            elif self.captured.keep_views and spec.members is None and spec.fake._base is not None:
                traced.argument = self._as_view(traced.argument, traced)
            if spec.is_root:
                self._derive_views(traced, spec)
            elif spec.members is not None:
                self._derive_members(traced, spec.members)
        for traced in self.inputs:
            if traced.inner is None:
                continue
            traced.version = version_of(traced.argument)
            traced.grad_fn = traced.argument.grad_fn
            traced.steps = view_steps(self.engine.core(traced.argument))

    def _make_leaf(self, fake: torch.Tensor, traced: TracedInput) -> None:
        """Make the leaf that gets the gradient. A non-leaf argument is another tensor, with eager's base."""
        tensor = traced.argument if fake.is_leaf else self._wrapped(traced)
        base = fake._base
        if base is not None and fake.requires_grad and not base.requires_grad:
            tensor = self._as_view(tensor, traced)
        if fake.is_leaf:
            traced.leaf = traced.argument = tensor.requires_grad_()
            return
        traced.leaf = traced.argument.requires_grad_()
        with torch.enable_grad(), disable_proxy_modes_tracing():
            traced.argument = _AsNonLeaf.apply(traced.leaf, [tensor])
        if base is not None and base.requires_grad and base.is_leaf:
            self.engine.views_of_leaves.add(id(traced.argument))

    def _as_view(self, root: torch.Tensor, traced: TracedInput) -> torch.Tensor:
        """Return a view of all of ``root``, because the example is a view."""
        traced.root = root
        with torch.enable_grad():
            return whole_view(root)

    def _derive_members(self, base: TracedInput, members: Sequence[int]) -> None:
        """Make the members of a flat base as views of it, each with its own version counter."""
        for index in members:
            fake = self.captured.inputs[index].fake
            member = self.inputs[index]
            member.base = base
            view = base.argument.as_strided(fake.shape, fake.stride(), fake.storage_offset())
            # ``.data``: the same memory with its own version counter, to count the changes of this member.
            member.argument = view.data

    def _derive_views(self, base: TracedInput, spec: CapturedInput) -> None:
        """Make the members of a root as autograd's views of it."""
        views: dict[int, torch.Tensor] = {}
        for index in spec.members or ():
            fake = self.captured.inputs[index].fake
            member = self.inputs[index]
            member.base, member.rooted, member.root = base, True, None
            if id(fake) not in views:
                views[id(fake)] = derive_view(base.argument, spec.fake, fake)
            member.argument = views[id(fake)]

    def new_placeholder(self, name: str, value: torch.Tensor) -> Node:
        """Add a placeholder behind the existing ones, for a tensor that the trace needs only now."""
        graph = self.tracer.graph
        last = graph.find_nodes(op="placeholder")[-1] if graph.nodes else graph._root
        with graph.inserting_after(last), disable_proxy_modes_tracing():
            proxy = self.tracer.create_proxy("placeholder", name, (), {})
            track_tensor_tree(value, proxy, constant=None, tracer=self.tracer)
        return proxy.node

    def value(self, wrapped: torch.Tensor) -> torch.Tensor:
        """Return the plain tensor under a functional tensor, after all mutations."""
        return current_value(self.engine, wrapped)

    def node_of(self, value: object) -> Any:
        """Return the node that computes ``value`` (a plain tensor or symbol); a constant as itself."""
        proxy = self.tracer.unwrap_proxy(value)
        if isinstance(proxy, torch.fx.Proxy):
            return proxy.node
        return self.tracer.create_arg(proxy)
