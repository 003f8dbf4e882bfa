"""Keep random operators in eager's order and with eager's bits.

Random operators stay in the graph in eager's order; nothing removes or repeats them. A partitioner may make
the backward draw again from the state that the generator had. One operator needs its own rule:
``x.bernoulli_(p)`` fills ``x`` in memory order, but the functional form ``aten.bernoulli.p`` always makes a
contiguous tensor. For a permuted ``x`` the same bits would be in other places, so the rule draws for the
contiguous permutation and permutes back.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node

from fxstack_functionalize.torch_compat import (
    FunctionalTensorMode,
    HigherOrderOperator,
    PythonFunctionalizeAPI,
    has_effects,
    run_and_save_rng_state,
)
from fxstack_functionalize.tracer.aten_tracer import AtenTracer
from fxstack_functionalize.tracer.inputs import RestartTraceError

FRESH = frozenset(
    {
        torch.ops.aten.empty_like.default,
        torch.ops.aten.empty.memory_format,
        torch.ops.aten.empty_strided.default,
        torch.ops.aten.new_empty.default,
        torch.ops.aten.new_empty_strided.default,
    }
)
"""Operators whose values are undefined. A random operator on such a result can only be an in-place fill."""


def is_generator_state(node: object) -> bool:
    """Whether ``node`` is the generator state before a draw, saved for a backward that draws again."""
    if not isinstance(node, Node) or node.target is not operator.getitem:
        return False
    drawing, index = node.args[0], node.args[1]
    return isinstance(drawing, Node) and drawing.target is run_and_save_rng_state and index == 0


RANDOM_BETWEEN = getattr(torch.ops.aten.random, "from")


def random_rules(tracer: AtenTracer, *, exact: bool) -> dict[Any, Callable[..., Any]]:
    """Return decompositions that keep in-place random fills bit-identical.

    ``exact``: in-place fills never reach these rules, because ``ExactRandomMode`` handles them first.
    """
    rules: dict[Any, Callable[..., Any]] = {RANDOM_BETWEEN: random_between}
    if exact:
        return rules

    def bernoulli(self: torch.Tensor, p: float = 0.5, *, generator: object = None) -> Any:
        """Draw numbers in the order of memory for a tensor that is not contiguous, as eager does."""
        if self.is_contiguous():
            return NotImplemented
        node = tracer.unwrap_proxy(self).node
        if node.target not in FRESH:
            # The fast functionalisation cannot distinguish the two operators.
            raise RestartTraceError(lambda captured: replace(captured, needs_modes=True))
        return fill_in_memory_order(self, p, generator)

    return rules | {torch.ops.aten.bernoulli.p: bernoulli}


def fill_in_memory_order(self: torch.Tensor, p: float, generator: object) -> torch.Tensor:
    """Return the value of ``self`` after ``self.bernoulli_(p)``."""
    order, inverse = _memory_order(self)
    drawn = torch.ops.aten.bernoulli.p(self.permute(order).contiguous(), p, generator=generator)
    result: torch.Tensor = drawn.permute(inverse)
    return result


def random_between(self: torch.Tensor, low: int, high: int | None, *, generator: object = None) -> Any:
    """Return the value of ``self.random_(low, high)``. ``aten.random.from`` is not a valid Python name."""
    if high is None:
        return NotImplemented
    order, inverse = _memory_order(self)
    drawn = torch.randint(
        low,
        high,
        [self.shape[dim] for dim in order],
        generator=generator,
        dtype=self.dtype,
        device=self.device,
    )
    return drawn.permute(inverse)


def _memory_order(self: torch.Tensor) -> tuple[list[int], list[int]]:
    """Return the dimensions from outermost to innermost in memory, and the inverse permutation."""
    order = sorted(range(self.dim()), key=lambda dim: -self.stride(dim))
    return order, [order.index(dim) for dim in range(self.dim())]


class ExactRandomMode(FunctionalTensorMode):
    """``FunctionalTensorMode`` that handles ``bernoulli_`` before it becomes ``bernoulli``."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False for the reason that ``RecordingMode`` gives."""
        return False

    def __torch_dispatch__(
        self,
        func: object,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if isinstance(func, HigherOrderOperator) and not has_effects(func):
            return func.python_key_table[FunctionalTensorMode](self, *args, **(kwargs or {}))
        if func is torch.ops.aten.bernoulli_.float and not args[0].is_contiguous():
            target, p = args[0], args[1] if len(args) > 1 else 0.5
            with self:
                drawn = fill_in_memory_order(target, p, (kwargs or {}).get("generator"))
                return target.copy_(drawn)
        if has_effects(func):
            return self._call_in_order(func, args, kwargs or {})
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _call_in_order(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator with effects itself. torch would add a token; here the order of nodes suffices."""
        below = PythonFunctionalizeAPI(self)
        plain_args, plain_kwargs = below.unwrap_tensors(args), below.unwrap_tensors(kwargs)
        with below.redispatch_to_next():
            return below.wrap_tensors(func(*plain_args, **plain_kwargs))
