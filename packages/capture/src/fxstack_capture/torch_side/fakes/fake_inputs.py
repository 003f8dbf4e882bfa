"""Choose and make the fake of an input tensor, and record the guards on the tensor."""

from __future__ import annotations

from typing import Any

import torch

from fxstack_capture.shapes.geometry import static_numbers
from fxstack_capture.shapes.marks import marks_within
from fxstack_capture.shapes.policy import TensorPlan, plan_tensor
from fxstack_capture.sources import Source
from fxstack_capture.torch_compat import FakeTensor
from fxstack_capture.torch_side.fakes import tensor_facts as facts
from fxstack_capture.torch_side.recording.protocol import TracerProtocol


def known(tracer: TracerProtocol, real: torch.Tensor, source: Source) -> FakeTensor | None:
    """Return the fake that a plain tensor already has, with guards, or ``None``."""
    made = tracer.faker.known(real)
    if made is None or id(made) not in tracer.faker.implied:
        return made
    # Only a view of ``real`` was wrapped until now, so the tensor has no guards yet.
    tracer.faker.implied.remove(id(made))
    return static(tracer, real, source)


def new(tracer: TracerProtocol, real: torch.Tensor, source: Source) -> FakeTensor:
    """Make the fake of a plain tensor that has no fake yet."""
    planned = plan(tracer, real, source)
    if planned.static:
        return static(tracer, real, source)
    return symbolic(tracer, real, source, tracer.geometry.tensor(real, source, planned))


def plan(tracer: TracerProtocol, real: torch.Tensor, source: Source) -> TensorPlan:
    """Choose the symbolic sizes, strides and offset of a tensor. Guard that the tensor has no other marks."""
    trace = tracer.trace
    if not isinstance(real, torch.nn.Parameter):
        trace.guard(source, marks_within(real))
    return plan_tensor(real, source, tracer.history, trace.options, trace.contract, choices=trace.choices)


def static(tracer: TracerProtocol, real: torch.Tensor, source: Source) -> FakeTensor:
    """Make a fake with the constant size and strides of the real tensor."""
    tracer.trace.guard(source, facts.tensor_is(real))
    return tracer.faker.fake(real, real.size(), real.stride(), real.storage_offset())


def symbolic(
    tracer: TracerProtocol, real: torch.Tensor, source: Source, geometry: tuple[Any, Any, Any]
) -> FakeTensor:
    """Make a fake with the given sizes, strides and offset, some of which are symbolic."""
    sizes, strides, offset = geometry
    tracer.trace.guard(source, facts.tensor_is(real, static_numbers(sizes), static_numbers(strides)))
    return tracer.faker.fake(real, sizes, strides, offset)
