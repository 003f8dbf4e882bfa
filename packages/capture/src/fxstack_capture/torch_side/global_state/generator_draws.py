"""Random tensors from a generator that the program created (``torch.randn(3, generator=g)``).

A method that fills a tensor (``x.normal_(generator=g)``) draws such a tensor and copies it.

The replacement code draws the tensor before the graph runs, in order with the other draws
(``trace.random_draws``). The graph takes the tensor as an input. The earlier draw is safe, because only
another draw from the same generator can observe the order.

Torch's default generators are different: operators of the graph also draw from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import AllDistinct, IdentityIs
from fxstack_capture.sources import pinned
from fxstack_capture.torch_side.recording.execution import name_of
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

FUNCTIONS = (torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal)
FILLS = (
    *("normal_", "uniform_", "exponential_", "geometric_", "log_normal_", "cauchy_", "random_"),
    "bernoulli_",
)
"""Methods that fill a tensor with random numbers."""


def draw(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``FUNCTIONS``. With a generator of the program, the frame draws the tensor, which
    becomes an input of the graph. Without one, or with torch's default generator of the CPU, the graph draws
    it.
    """
    generator = kwargs.get("generator")
    if generator is None or tracer.transforms.inside:
        return tracer.record(fn, args, kwargs)
    rest = {name: value for name, value in kwargs.items() if name != "generator"}
    if generator is torch.default_generator and _on_cpu(rest.get("device")):
        _guard_same(tracer, generator)
        return tracer.record(fn, args, rest)
    if rest.get("layout") is torch.strided:
        del rest["layout"]
    _demand_alone(tracer, fn, generator, args, rest)
    example = _example(fn, generator, args, rest)
    # Pass dtype and device explicitly. Torch's defaults may have changed when the replacement code draws the
    # tensor.
    rest.update(dtype=example.dtype, device=example.device)
    _guard_own(tracer, generator)
    source = tracer.trace.objects.draws.add(_from(fn, name_of(fn)), generator, args, rest)
    return tracer.enter_drawn(example, source)


def fill(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``FILLS``. The frame draws a tensor of the same kind, and the graph copies it. Break
    the graph if the tensor is not contiguous, or is of a subclass. A call without a generator is recorded as
    it is.
    """
    generator = kwargs.get("generator")
    if generator is None or tracer.transforms.inside:
        return tracer.record(fn, args, kwargs)
    owner = getattr(fn, "__self__", None)
    if isinstance(owner, torch.Tensor):
        args = (owner, *args)
    tensor, *values = args
    rest = {name: value for name, value in kwargs.items() if name != "generator"}
    _demand_alone(tracer, fn, generator, tuple(values), rest)
    is_plain = tracer.python_type(tensor) is torch.Tensor
    if not (is_plain and tensor.is_contiguous()):
        raise graph_break("unsupported-call", f"{name_of(fn)} of this tensor with a generator")
    size = tuple(tracer.specialize(length) for length in tensor.shape)
    arguments = (size, tensor.dtype, tensor.device, *values)
    filled = partial(_fill_new, fn.__name__)
    example = _example(filled, generator, arguments, rest)
    _guard_own(tracer, generator)
    source = tracer.trace.objects.draws.add(_from(filled, fn.__name__), generator, arguments, rest)
    return tracer.call(torch.Tensor.copy_, (tensor, tracer.enter_drawn(example, source)), {})


def _fill_new(
    name: str, size: Args, dtype: torch.dtype, device: torch.device, *args: object, **kwargs: object
) -> Any:
    """Return a new tensor, filled by the method ``name``. The replacement code calls this."""
    return getattr(torch.empty(size, dtype=dtype, device=device), name)(*args, **kwargs)


def seed(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``Generator.manual_seed``: seed the generator in order with the draws."""
    generator, *rest = args
    _demand_alone(tracer, fn, generator, tuple(rest), kwargs)
    _guard_own(tracer, generator)
    tracer.trace.objects.draws.add(fn, generator, tuple(rest), kwargs)
    return generator


def _guard_own(tracer: TracerProtocol, generator: torch.Generator) -> None:
    """Guard that the generator is none of torch's default generators."""
    # Graph operators draw from the default generators, which would change the order of the draws.
    others = tuple(pinned(other, "torch.default_generator") for other in _defaults())
    source = tracer.trace.objects.source_of(generator)
    assert source is not None
    tracer.trace.guard(source, AllDistinct(others))


def _guard_same(tracer: TracerProtocol, generator: torch.Generator) -> None:
    """Guard that the generator is the same object: the default generator."""
    source = tracer.trace.objects.source_of(generator)
    assert source is not None
    tracer.trace.guard(source, IdentityIs(generator, id(generator)))


def _on_cpu(device: object) -> bool:
    """Return whether a tensor made for ``device`` is on the CPU. Torch then draws from ``default_generator``."""
    made_for = torch.get_default_device() if device is None else torch.device(device)
    return bool(made_for.type == "cpu")


def _from(fn: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return ``fn`` with the generator as first argument, and with the name ``name``. The replacement code
    calls it.
    """
    drawn = partial(_draw, fn)
    drawn.__name__ = name  # type: ignore[attr-defined]
    return drawn


def _draw(fn: Callable[..., Any], generator: torch.Generator, *args: object, **kwargs: object) -> Any:
    """Return ``fn(*args, generator=generator, **kwargs)``. The replacement code calls this to draw a tensor."""
    return fn(*args, generator=generator, **kwargs)


def _defaults() -> tuple[torch.Generator, ...]:
    """Return torch's default generators."""
    return (torch.default_generator, *torch.cuda.default_generators)


def _demand_alone(
    tracer: TracerProtocol, fn: Callable[..., Any], generator: object, args: Args, rest: Mapping[str, Any]
) -> None:
    """Break the graph unless all arguments are constants and the generator comes from outside of the frame."""
    plain = all(map(_is_plain, (*args, *rest.values())))
    special = rest.keys() - {"size", "dtype", "device", "low", "high", "n", "mean", "std", "seed"}
    special -= {"from", "to", "lambd", "p", "median", "sigma"}
    objects: Any = tracer.trace.objects
    is_programs = type(generator) is torch.Generator and objects.is_preexisting(generator)
    if not (plain and is_programs) or special or any(generator is other for other in _defaults()):
        text = f"{name_of(fn)} with a generator of the program's own"
        raise graph_break("unsupported-call", text)


def _is_plain(value: Any) -> bool:
    """Return whether the value is a constant that the replacement code can pass to the function."""
    if type(value) in (tuple, list, torch.Size):
        return all(map(_is_plain, value))
    return type(value) in (int, float, torch.dtype, torch.device, str, type(None))


def _example(
    fn: Callable[..., Any], generator: torch.Generator, args: Args, rest: dict[str, Any]
) -> torch.Tensor:
    """Return the result of the function with a new generator, for its metadata. Break the graph if the
    function raises.

    The program's generator does not advance.
    """
    try:
        example: torch.Tensor = fn(*args, generator=torch.Generator(generator.device), **rest)
    except Exception as error:  # the program's own error, which plain Python raises again
        text = f"{name_of(fn)}, which raises {type(error).__name__}"
        raise graph_break("unsupported-call", text) from error
    return example
