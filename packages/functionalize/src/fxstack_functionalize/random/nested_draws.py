"""Random numbers of nested graphs whose backward runs their forward again (``torch.cond``, loops).

torch differentiates such an operator by functions that compute the nested graph again. They would draw other
numbers than the forward. So the nested graph gets the state of the generator as a further argument, draws from
this state, and returns the next state: equal states give equal numbers. The operators around it read the state
of torch's generator and set it afterwards, so all numbers are those of eager's forward. torch differentiates
only loops whose carried values are floating-point. So the bytes of a state pass as ``float32`` numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter
from torch.fx.node import Target

from fxstack_functionalize.operators import control_flow
from fxstack_functionalize.operators.control_flow import with_gradients
from fxstack_functionalize.random.functional_random import functional_form
from fxstack_functionalize.regions.table import REGION
from fxstack_functionalize.torch_compat import OpOverload, TorchDispatchMode, tree_leaves
from fxstack_interchange.operators.seeds import GET_STATE, SET_STATE
from fxstack_interchange.torch_facts.effects import draws

# Limits: numbers that a GPU draws, and numbers that ``associative_scan`` draws, are drawn again in the
# backward.

Many = Sequence[object]
_OPERATORS = torch.ops.higher_order


def has_nested_draws(root: torch.nn.Module) -> bool:
    """Whether a nested graph of ``root`` draws random numbers, except shared regions, whose backward does not run them.

    The trace of a backward then restarts with ``equal_draws``.
    """
    return any(
        draws(node)
        for module in root.modules()
        if isinstance(module, GraphModule) and REGION not in module.meta
        for node in module.graph.nodes
    )


def with_equal_draws(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` such that its backward sees the numbers of its forward.

    ``function``: a higher-order operator, or a graph that calls some.
    """
    if function in _THREADED:
        return lambda *args, **_kwargs: _call_at_top(function, args)
    return _InlinedGraph(function).run if isinstance(function, GraphModule) else with_gradients(function)


def _call_at_top(operator: Callable[..., Any], args: Sequence[object]) -> Any:
    """Call a higher-order operator of the outermost graph with torch's generator state.

    Install the new state. The state goes through the operator in ``float32`` form.
    """
    result, state = _THREADED[operator](GET_STATE().view(torch.float32), *args)
    SET_STATE(state.detach().view(torch.uint8))
    return result


class _InlinedGraph(Interpreter):
    """Runs a graph that is inlined: its higher-order operators draw from torch's generator."""

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target = with_equal_draws(target) if callable(target) else target
        return super().call_function(target, args, kwargs)


class _NestedGraph(Interpreter):
    """Runs a nested graph that draws from a state: the first argument, and the first or last result."""

    def __init__(self, module: GraphModule, *, state_first: bool) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._state_first = state_first
        self.__name__ = "body"

    def __call__(self, state: Tensor, *args: object) -> tuple[Any, ...]:
        with control_flow.inside_of_a_body(), _DrawMode(state.detach()) as mode:
            self._mode = mode
            results = self.run(*args)
        state = mode.state.clone()
        return (state, *results) if self._state_first else (*results, state)

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Pass the current state through a higher-order operator inside of a graph. Other calls run as usual."""
        if target is _OPERATORS.invoke_subgraph:  # a shared region draws from the same state
            body, _identifier, *operands = args
            region = _NestedGraph(body, state_first=False)
            region._mode = self._mode
            return region.run(*operands)
        if target not in _THREADED:
            return super().call_function(with_gradients(target), args, kwargs)
        result, state = _THREADED[target](self._mode.state, *args)
        self._mode.state = state.detach()
        return result


def _cond(state: Tensor, pred: object, yes: GraphModule, no: GraphModule, operands: Many) -> Any:
    """Run ``torch.cond`` with the state as one more operand. Return its results and the new state."""
    first, second = (_NestedGraph(branch, state_first=False) for branch in (yes, no))
    *results, state = control_flow.cond(pred, first, second, (state, *operands))
    return tuple(results), state


def _while_loop(
    state: Tensor,
    cond: GraphModule,
    body: GraphModule,
    carried: Many,
    additional: Many,
    *,
    stacks: bool = False,
) -> Any:
    """Run ``while_loop`` with the state as one more carried value. The condition draws no numbers.

    ``stacks``: run ``while_loop_stack_output``, whose results are the values of all iterations.
    """

    def goes_on(_state: object, *args: object) -> Any:
        return cond(*args)

    step = _NestedGraph(body, state_first=True)
    operator = _OPERATORS.while_loop_stack_output if stacks else _OPERATORS.while_loop
    state, *results = control_flow.while_loop(
        goes_on, step, (state, *carried), tuple(additional), operator=operator
    )
    return tuple(results), state[-1] if stacks else state


def _scan(state: Tensor, body: GraphModule, init: Many, xs: Many, additional: Many) -> Any:
    """Run ``scan`` with the state as one more carried value. Return its results and the new state."""
    step = _NestedGraph(body, state_first=True)
    state, *results = control_flow.scan(step, [state, *init], list(xs), tuple(additional))
    return tuple(results), state


_THREADED: dict[Any, Callable[..., Any]] = {
    _OPERATORS.cond: _cond,
    _OPERATORS.while_loop: _while_loop,
    _OPERATORS.while_loop_stack_output: partial(_while_loop, stacks=True),
    _OPERATORS.scan: _scan,
    _OPERATORS.map_impl: lambda state, body, xs, additional: _scan(state, body, (), xs, additional),
}
"""By operator: a function of a state and the operator's arguments, which returns the results and the next state."""


class _DrawMode(TorchDispatchMode):
    """Replaces operators that draw by operators that draw from ``state``."""

    supports_higher_order_operators = True

    def __init__(self, state: Tensor) -> None:
        super().__init__()
        self.state = state

    def __torch_dispatch__(
        self, func: Any, _types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if not _draws_on_cpu(func, args, kwargs):
            return func(*args, **kwargs)
        other_kwargs = {name: value for name, value in kwargs.items() if name != "generator"}
        state, *results = functional_form(func)(self.state.view(torch.uint8), *args, **other_kwargs)
        self.state = state.view(torch.float32)
        if func._schema.is_mutable:
            return args[0].copy_(results[0])
        return results[0] if len(results) == 1 else tuple(results)


def _draws_on_cpu(func: object, args: object, kwargs: dict[str, Any]) -> bool:
    """Return whether an ATen call draws from the default CPU generator."""
    if not isinstance(func, OpOverload) or torch.Tag.nondeterministic_seeded not in func.tags:
        return False
    if func.namespace != "aten" or kwargs.get("generator") is not None:
        return False
    device = next((leaf.device for leaf in tree_leaves(args) if isinstance(leaf, Tensor)), None)
    return device.type == "cpu" if device is not None else str(kwargs.get("device") or "cpu") == "cpu"
