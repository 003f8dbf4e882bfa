"""Which fake a tensor from outside gets, and the guards that come with it."""

from __future__ import annotations

from typing import Any

import torch

from fxstack_capture.shapes.geometry import numbers
from fxstack_capture.shapes.marks import marks_within
from fxstack_capture.shapes.policy import TensorPlan, plan_tensor
from fxstack_capture.sources import Source
from fxstack_capture.torch_compat import FakeTensor
from fxstack_capture.torch_side.fakes import tensor_facts as facts
from fxstack_capture.torch_side.recording.protocol import TracerProtocol


def known(tracer: TracerProtocol, real: torch.Tensor, source: Source) -> FakeTensor | None:
    """The guarded fake that a plain tensor has already."""
    made = tracer.faker.known(real)
    if made is None or id(made) not in tracer.faker.implied:
        return made
    tracer.faker.implied.remove(id(made))
    return static(tracer, real, source)


def new(tracer: TracerProtocol, real: torch.Tensor, source: Source) -> FakeTensor:
    """The fake of a plain tensor that has none yet."""
    planned = plan(tracer, real, source)
    if planned.static:
        return static(tracer, real, source)
    return symbolic(tracer, real, source, tracer.geometry.tensor(real, source, planned))


def plan(tracer: TracerProtocol, real: torch.Tensor, source: Source) -> TensorPlan:
    """What of a tensor is symbolic; that it has no other marks is guarded."""
    trace = tracer.trace
    if not isinstance(real, torch.nn.Parameter):
        trace.guard(source, marks_within(real))
    return plan_tensor(real, source, tracer.history, trace.options, trace.contract, choices=trace.choices)


def static(tracer: TracerProtocol, real: torch.Tensor, source: Source) -> FakeTensor:
    """A fake of just the real tensor's size and strides."""
    tracer.trace.guard(source, facts.tensor_is(real))
    return tracer.faker.fake(real, real.size(), real.stride(), real.storage_offset())


def symbolic(
    tracer: TracerProtocol, real: torch.Tensor, source: Source, geometry: tuple[Any, Any, Any]
) -> FakeTensor:
    """A fake of the given sizes, strides and offset, some of which are symbolic."""
    sizes, strides, offset = geometry
    tracer.trace.guard(source, facts.tensor_is(real, numbers(sizes), numbers(strides)))
    return tracer.faker.fake(real, sizes, strides, offset)
