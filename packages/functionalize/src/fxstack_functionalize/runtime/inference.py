"""The wrapper around a compiled inference graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxstack_functionalize.runtime.arguments import entry_point
from fxstack_functionalize.runtime.calling import listed
from fxstack_functionalize.runtime.modes import call_guard
from fxstack_functionalize.runtime.mutation import write_back
from fxstack_functionalize.runtime.outputs import output_epilogue
from fxstack_functionalize.runtime.strides import restrider

if TYPE_CHECKING:
    from collections.abc import Callable

    from fxstack_functionalize.options import AotOptions
    from fxstack_functionalize.runtime.calling import Compiled
    from fxstack_functionalize.trace import Traced


def inference_wrapper(
    traced: Traced, compiled: Compiled, options: AotOptions
) -> Callable[..., Any]:
    """Return the callable with the captured graph's own signature."""
    info = traced.info
    call = call_guard(info, listed(compiled, info.output_count, "inference graph"))
    epilogue = output_epilogue(traced)
    write = write_back(traced)
    restride = restrider(traced) if options.check_output_strides else None

    def run(arguments: list[Any]) -> Any:
        flat = call(list(arguments))
        if restride is not None:
            flat = restride(arguments, flat)
        if write is not None:
            write(arguments, flat)
        return epilogue(arguments, flat)

    return entry_point(traced, run)
