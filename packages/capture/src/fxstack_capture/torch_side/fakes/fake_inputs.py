"""The fake of an input tensor: which tensors have fakes, how a fake is found or made, and its guards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.guards.records import TensorIs, tensor_facts
from fxstack_capture.shapes.geometry import static_numbers
from fxstack_capture.shapes.marks import marks_within
from fxstack_capture.shapes.policy import TensorPlan, plan_tensor
from fxstack_capture.sources import Source
from fxstack_capture.torch_compat import FakeTensor
from fxstack_capture.torch_side.fakes.writes import is_leaf
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.subclasses.fake_classes import unsupported_reason
from fxstack_capture.torch_side.subclasses.wrapper_classes import is_wrapped

PLAIN_CLASSES = frozenset({torch.Tensor, torch.nn.Parameter})


def tensor_is(
    real: torch.Tensor, sizes: Sequence[int | None] | None = None, strides: Sequence[int | None] | None = None
) -> TensorIs:
    """Return the guard record of ``real``.

    ``sizes`` and ``strides`` have None for each dynamic number. By default, all numbers are static.
    """
    # A tensor that does not require grad is always a leaf. The record has ``is_leaf`` only for tensors that
    # require grad.
    facts = tensor_facts(real)
    if sizes is None and strides is None and not real.requires_grad:
        return facts
    return replace(
        facts,
        sizes=facts.sizes if sizes is None else tuple(sizes),
        strides=facts.strides if strides is None else tuple(strides),
        is_leaf=real.is_leaf if real.requires_grad else None,
    )


def demand_supported(real: torch.Tensor) -> None:
    """Break the graph for a tensor of a kind that fakes do not represent exactly."""
    kind = _unsupported_kind(real)
    if kind is not None:
        raise graph_break("unsupported-tensor", kind)


def _unsupported_kind(real: torch.Tensor) -> str | None:
    """Return the kind of an unsupported tensor, for example ``nested tensor``. None for a supported tensor."""
    cls = type(real)
    if cls not in PLAIN_CLASSES:
        why = unsupported_reason(cls)
        if why is not None:
            return f"class {cls.__module__}.{cls.__qualname__}, which {why},"
    if real.layout is not torch.strided:
        return f"layout {real.layout}"
    if real.is_quantized:
        return f"quantized dtype {real.dtype}"
    if real.is_nested:
        return "nested tensor"
    if real.requires_grad and is_leaf(real) is None:
        return "view made under no_grad, whose base was changed,"
    if is_wrapped(real):
        return "tensor inside a torch.func transform"
    if torch_compat.is_legacy_batchedtensor(real):
        return "tensor inside of autograd's own vmap"
    return None


def existing_fake(tracer: TracerProtocol, real: torch.Tensor, source: Source) -> FakeTensor | None:
    """Return the fake that a plain tensor already has, or None.

    If only views of the tensor have been wrapped so far, the tensor gets its guards now.
    """
    fake = tracer.faker.known(real)
    if fake is None or id(fake) not in tracer.faker.implied:
        return fake
    # Only a view of ``real`` has been wrapped so far, so ``real`` has no guards yet.
    tracer.faker.implied.remove(id(fake))
    return make_static(tracer, real, source)


def make_fake(tracer: TracerProtocol, real: torch.Tensor, source: Source) -> FakeTensor:
    """Return the fake of a plain tensor that has no fake yet, and guard the tensor."""
    planned = plan_geometry(tracer, real, source)
    if planned.static:
        return make_static(tracer, real, source)
    return make_symbolic(tracer, real, source, tracer.geometry.tensor(real, source, planned))


def plan_geometry(tracer: TracerProtocol, real: torch.Tensor, source: Source) -> TensorPlan:
    """Return the plan: which sizes, strides and offset of a tensor become symbolic.

    Unless the tensor is a parameter, a guard demands that it has no other marks of the program
    (``mark_dynamic`` and so on).
    """
    trace = tracer.trace
    if not isinstance(real, torch.nn.Parameter):
        trace.guard(source, marks_within(real))
    return plan_tensor(real, source, tracer.history, trace.options, trace.contract, choices=trace.choices)


def make_static(tracer: TracerProtocol, real: torch.Tensor, source: Source) -> FakeTensor:
    """Return a fake with the sizes, strides and offset of the real tensor as constants. They are guarded."""
    tracer.trace.guard(source, tensor_is(real))
    return tracer.faker.fake(real, real.size(), real.stride(), real.storage_offset())


def make_symbolic(
    tracer: TracerProtocol, real: torch.Tensor, source: Source, geometry: tuple[Any, Any, Any]
) -> FakeTensor:
    """Return a fake with the sizes, strides and offset in ``geometry``. Some of them are symbolic.

    A guard covers the constants among the sizes and strides.
    """
    sizes, strides, offset = geometry
    tracer.trace.guard(source, tensor_is(real, static_numbers(sizes), static_numbers(strides)))
    return tracer.faker.fake(real, sizes, strides, offset)
