"""``torch.manual_seed``, ``get_rng_state`` and ``set_rng_state`` as nodes of the graph, in order with the
draws.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.sources import pinned
from fxstack_capture.torch_compat import FakeTensor
from fxstack_capture.torch_side.recording.execution import name_of
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs
from fxstack_interchange.operators.seeds import GET_STATE, MANUAL_SEED, SET_STATE, STATE_SIZE

Rule = Callable[[TracerProtocol, Callable[..., Any], Args, Kwargs], Any]

_SIGNED = range(-(1 << 63), 1 << 63)


def _manual_seed(tracer: TracerProtocol, fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``torch.manual_seed``. It returns the default generator. Break the graph if the seed
    is no number of 64 bits.
    """
    (seed,) = _only(tracer, fn, "seed", args, kwargs)
    if type(seed) is not torch.SymInt and (type(seed) is not int or seed not in _SIGNED):
        raise graph_break("side-effect-call", "torch.manual_seed of what is no number of 64 bits")
    tracer.record(MANUAL_SEED, (seed,), {})
    generator = torch.default_generator
    objects: Any = tracer.trace.objects
    return objects.enter(generator, pinned(generator, "torch.default_generator"))


def _get_state(tracer: TracerProtocol, fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``torch.get_rng_state``."""
    _demand_plain(tracer, fn)
    return tracer.record(GET_STATE, args, kwargs)


def _set_state(tracer: TracerProtocol, fn: object, args: Args, kwargs: Kwargs) -> None:
    """Apply the rule for ``torch.set_rng_state``. Break the graph if the argument is no state."""
    (state,) = _only(tracer, fn, "new_state", args, kwargs)
    with tracer.unrecorded():
        is_valid = isinstance(state, FakeTensor) and _is_state(state)
    if not is_valid:
        raise graph_break("side-effect-call", "torch.set_rng_state of what is no state")
    tracer.record(SET_STATE, (state,), {})


def _is_state(tensor: FakeTensor) -> bool:
    """Return whether a tensor has the dtype, device and size of a state of the default generator."""
    described = (tensor.dtype, tensor.device.type, tuple(tensor.shape))
    return described == (torch.uint8, "cpu", (STATE_SIZE,)) and tensor.is_contiguous()


def _only(tracer: TracerProtocol, fn: object, name: str, args: Args, kwargs: Kwargs) -> Args:
    """Return a tuple with the only argument of the call. ``name`` is its keyword. Break the graph for other
    arguments.
    """
    _demand_plain(tracer, fn)
    if len(args) + len(kwargs) != 1 or not kwargs.keys() <= {name}:
        raise graph_break("side-effect-call", f"{name_of(fn)} with other arguments than its own")
    return (*args, *kwargs.values())


def _demand_plain(tracer: TracerProtocol, fn: object) -> None:
    """Break the graph if a layer of ``torch.func`` is active. Plain Python then handles seeds and states."""
    if tracer.transforms.inside:
        raise graph_break("side-effect-call", f"{name_of(fn)} under a transform")


RULES: dict[Any, Rule] = {
    torch.random.manual_seed: _manual_seed,
    torch.get_rng_state: _get_state,
    torch.set_rng_state: _set_state,
}
