"""The table of polyfill requests by the kind of step, and the function that asks for one."""

from __future__ import annotations

from functools import partial
from typing import Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.polyfills.attributes import attribute, delete, store
from fxstack_capture.calls.polyfills.callables import for_callable, formatting
from fxstack_capture.calls.polyfills.finding import Maker
from fxstack_capture.calls.polyfills.iteration import advance, iterate
from fxstack_capture.calls.polyfills.operators import binary, item, truth, unary
from fxstack_capture.trace.state import Calls, Request

REQUESTS: dict[str, Maker] = {
    "binary": binary,
    "unary": unary,
    "truth": truth,
    "formatting": formatting,
    "item": item,
    "attribute": attribute,
    "store": store,
    "delete": delete,
    "iterate": iterate,
    "advance": advance,
}
"""By the kind of step."""


def request(calls: Calls, maker: Maker, operands: tuple[Any, ...]) -> Request | None:
    """Call ``maker`` for the operands.

    An exception is an error of the tracer, not of the program, and breaks the graph.
    """
    try:
        return maker(calls, *operands)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        raise graph_break("tracing-error", text) from error


def of_call(calls: Calls, fn: object, args: tuple[Any, ...], kwargs: object) -> Request | None:
    """The request for a call of C code."""
    return request(calls, partial(for_callable, fn=fn), (args, kwargs))
