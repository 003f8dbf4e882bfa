"""``print`` while tracing: the text is made at the call, and is written after the graph has run.

As long as lines stay in order, a program cannot observe when they are written. No code up to the next graph
break reads the stream. This holds for streams of the standard library, notebooks and test runners. It does
not hold for a stream class of the program. Text that depends on the values of a tensor breaks the graph.
"""

from __future__ import annotations

import io
import sys
from typing import Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import plainly
from fxstack_capture.calls import scan
from fxstack_capture.calls.native_run import run
from fxstack_capture.calls.rules import RULES
from fxstack_capture.guards.records import TypeIs
from fxstack_capture.objects.printed_texts import NUMBERS, Text, concrete
from fxstack_capture.sources import InstanceAttr, pinned
from fxstack_capture.trace.effects import Call
from fxstack_capture.trace.state import Args, Kwargs, Trace
from fxstack_interchange.format.symbols import SYMBOLIC

_STREAM_MODULES = frozenset({"io", "_io", "_pytest.capture", "ipykernel.iostream"})
"""The modules of streams whose writes the program cannot observe."""


@RULES.rule(print)
def _print(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> None:
    """Make the text now, and write it after the graph has run. Break the graph if the text goes to a file
    from outside, or if standard output is no plain stream.
    """
    file = kwargs.get("file")
    if type(file) is io.StringIO and not trace.objects.is_preexisting(file):
        args = tuple([concrete(trace, value) for value in args])
        # this stream belongs to the trace, so there is no side effect
        result: None = run(trace, print, args, kwargs)
        return result
    if file is not None or not _is_plain_stream(trace):
        raise graph_break("side-effect-call", "print")
    texts = tuple([_text(trace, value) for value in args])
    options = {name: _option(name, value) for name, value in kwargs.items()}
    objects = trace.objects
    objects.deferred.append(Call(pinned(print, "print"), texts, options))
    return None


def _is_plain_stream(trace: Trace) -> bool:
    """Whether standard output is a stream of a known module, and the frame has not replaced it."""
    objects = trace.objects
    cls = type(sys.stdout)
    if objects.namespace(vars(sys)).has_changed("stdout") or cls.__module__ not in _STREAM_MODULES:
        return False
    trace.guard(InstanceAttr(pinned(sys, "sys"), "stdout"), TypeIs(cls))
    return True


def _text(trace: Trace, value: object) -> Any:
    """Return the text of a value for ``print``. The replacement code formats symbolic numbers. Break the
    graph for a tensor.
    """
    if type(value) in NUMBERS or type(value) is Text:
        return value
    if scan.scan(trace, (value,), []) & scan.TENSOR:
        raise graph_break("side-effect-call", "print of a tensor")
    return trace.calls.call(str, (value,), {})


def _option(name: str, value: object) -> Any:
    """Return a valid ``sep``, ``end`` or ``flush``. Raises the TypeError of ``print`` for an invalid option."""
    if name not in ("sep", "end", "flush", "file") or not isinstance(value, (str, bool, type(None))):
        plainly(print, (), {"file": io.StringIO(), name: value})
    return value


@RULES.rule(*(cls.__repr__ for cls in SYMBOLIC))
def _text_of_a_number(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> str:
    """Return the ``repr`` of a symbolic number inside of another object.

    C code calls this ``repr``, for example in the ``repr`` of an ``OrderedDict``.
    """
    return repr(trace.torch.specialize(args[0]))
