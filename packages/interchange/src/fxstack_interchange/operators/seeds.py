"""The state of torch's default generator as operators of a graph.

These operators keep their order relative to the operators that draw random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from fxstack_interchange.torch_compat import OpOverload

NAMESPACE: Final = "fxstack_seeds"
_LIBRARY: Final = torch.library.Library(NAMESPACE, "FRAGMENT")


def _define(schema: str, real: Callable[..., Any], fake: Callable[..., Any]) -> OpOverload:
    """Define an operator from its schema, and return its overload."""
    name = schema.partition("(")[0]
    # The tag marks the operator as ordered among the operators that draw random numbers. Such an operator
    # never runs twice.
    _LIBRARY.define(schema, tags=(torch.Tag.nondeterministic_seeded,))
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)
    _LIBRARY.impl(name, real, "CompositeExplicitAutograd")
    operator: OpOverload = getattr(getattr(torch.ops, NAMESPACE), name).default
    return operator


def _manual_seed(seed: int) -> None:
    torch.random.manual_seed(seed)


def set_state(state: torch.Tensor) -> None:
    """Set the state of torch's generator. torch itself crashes if the state is a part of a larger tensor."""
    torch.set_rng_state(state.clone())


def _no_result(*_arguments: object) -> None:
    """Fake kernel of an operator that returns nothing."""


def _fake_state() -> torch.Tensor:
    return torch.empty(STATE_SIZE, dtype=torch.uint8, device="cpu")


STATE_SIZE: Final = torch.get_rng_state().numel()
"""Number of bytes of a generator state."""

MANUAL_SEED: Final = _define("manual_seed(SymInt seed) -> ()", _manual_seed, _no_result)
"""``torch.manual_seed``, which seeds the generators of all devices."""
GET_STATE: Final = _define("get_state() -> Tensor", torch.get_rng_state, _fake_state)
"""``torch.get_rng_state``, which returns a tensor of bytes."""
SET_STATE: Final = _define("set_state(Tensor state) -> ()", set_state, _no_result)
"""``torch.set_rng_state``."""
