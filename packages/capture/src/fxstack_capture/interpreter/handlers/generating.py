"""Instructions inside of generators: create, yield, delegate."""

from __future__ import annotations

from typing import Any

from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.interpreter.generators import TraceGenerator, stop_iteration_error
from fxstack_capture.interpreter.program import LEAVE


def return_generator(frame: Frame, _operand: object) -> int:
    """Suspend the frame before its first statement. Its result, for the caller, is the generator."""
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
    """Send a value to the inner iterator of ``yield from``. When it ends, its result replaces it (Python 3.11)."""
    return send(frame, target, popped=2)


def send(frame: Frame, target: int, popped: int = 1) -> int | None:
    """Send a value to the inner iterator of ``yield from``. When it ends, END_SEND pops it (from Python 3.12 on).

    ``popped``: the number of values that the result replaces then.
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
    """Handle an exception that the inner iterator raised in reply to a ``throw`` (from Python 3.12 on)."""
    stack = frame.stack
    exception = stack[-1]
    if not isinstance(exception, StopIteration):
        raise frame.interp.reraising(stack.pop())
    stack[-3:] = (None, exception.value)


def convert_stop_iteration(frame: Frame, _operand: object) -> None:
    """Replace a StopIteration that leaves a generator's body by a RuntimeError (from Python 3.12 on)."""
    stack = frame.stack
    if isinstance(stack[-1], StopIteration):
        stack[-1] = stop_iteration_error(stack[-1])
