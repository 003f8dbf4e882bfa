"""Instructions inside of generators: create, yield, delegate."""

from __future__ import annotations

from typing import Any

from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.generators import TraceGenerator, stop_iteration_error
from fxstack_capture.interpreter.program import LEAVE


def return_generator(frame: Frame, _operand: object) -> int:
    """Suspend the frame before its first statement. The caller gets the generator as the result."""
    frame.stack.append(TraceGenerator(frame))
    frame.pc += 1
    frame.suspended = True
    return LEAVE


def yield_value(frame: Frame, _operand: object) -> int:
    """Suspend the frame after the ``yield``. The yielded value is on top of the stack."""
    frame.pc += 1
    frame.suspended = True
    return LEAVE


def get_yield_from_iter(frame: Frame, _operand: object) -> None:
    """Convert the operand of ``yield from`` to an iterator. A generator of the trace needs no conversion."""
    stack = frame.stack
    if type(stack[-1]) is not TraceGenerator:
        stack[-1] = frame.calls.iterate(stack[-1])


def _send(frame: Frame, receiver: object, value: object) -> Any:
    """Return the next value of the inner iterator. Raises StopIteration when the iterator has returned."""
    if type(receiver) is TraceGenerator:
        return receiver.resume(value)
    if value is None:
        return frame.calls.next(receiver)
    method = frame.objects.load_attr(receiver, "send")
    return frame.calls.call(method, (value,), {})


def send_and_drop_receiver(frame: Frame, target: int) -> int | None:
    """Send a value to the inner iterator of ``yield from`` (Python 3.11). When it ends, its result replaces
    it.
    """
    return send(frame, target, popped=2)


def send(frame: Frame, target: int, popped: int = 1) -> int | None:
    """Send a value to the inner iterator of ``yield from`` (from Python 3.12 on).

    When the iterator ends, END_SEND pops it later. ``popped`` is the number of values that its result then
    replaces.
    """
    stack = frame.stack
    try:
        stack[-1] = _send(frame, stack[-2], stack[-1])
    except StopIteration as stop:
        frame.interp.dealt_with(stop)
        stack[-popped:] = (stop.value,)
        return target
    return None


def cleanup_throw(frame: Frame, _operand: object) -> None:
    """Handle an exception from the inner iterator that followed a ``throw`` (from Python 3.12 on)."""
    stack = frame.stack
    exception = stack[-1]
    if not isinstance(exception, StopIteration):
        raise frame.interp.reraising(stack.pop())
    stack[-3:] = (None, exception.value)


def convert_stop_iteration(frame: Frame, _operand: object) -> None:
    """Replace a StopIteration that leaves the body of a generator by a RuntimeError (from Python 3.12 on)."""
    stack = frame.stack
    if isinstance(stack[-1], StopIteration):
        stack[-1] = stop_iteration_error(stack[-1])
