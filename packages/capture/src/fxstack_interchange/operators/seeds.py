"""The state of torch's default generator as operators of a graph: they keep their place among the operators that draw from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from fxstack_interchange.torch_compat import OpOverload

NAMESPACE: Final = "fxstack_seeds"
_LIBRARY: Final = torch.library.Library(NAMESPACE, "FRAGMENT")


def _define(schema: str, real: Callable[..., Any], fake: Callable[..., Any]) -> OpOverload:
    name = schema.partition("(")[0]
    # The tag says of an operator that it has an order among those that draw, and is not run twice.
    _LIBRARY.define(schema, tags=(torch.Tag.nondeterministic_seeded,))
    torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_LIBRARY)
    _LIBRARY.impl(name, real, "CompositeExplicitAutograd")
    found: OpOverload = getattr(getattr(torch.ops, NAMESPACE), name).default
    return found


def _manual_seed(seed: int) -> None:
    torch.random.manual_seed(seed)


def _set_state(state: torch.Tensor) -> None:
    torch.set_rng_state(state)


def _no_result(*_arguments: object) -> None:
    """What operators that only act do with stand-ins."""


def _fake_state() -> torch.Tensor:
    return torch.empty(STATE_SIZE, dtype=torch.uint8, device="cpu")


STATE_SIZE: Final = torch.get_rng_state().numel()
"""Bytes of a state."""

MANUAL_SEED: Final = _define("manual_seed(SymInt seed) -> ()", _manual_seed, _no_result)
"""``torch.manual_seed``: the generators of all devices."""
GET_STATE: Final = _define("get_state() -> Tensor", torch.get_rng_state, _fake_state)
"""``torch.get_rng_state``: a tensor of bytes."""
SET_STATE: Final = _define("set_state(Tensor state) -> ()", _set_state, _no_result)
"""``torch.set_rng_state``."""
