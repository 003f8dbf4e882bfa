"""From the caller's arguments to the graph's: lifted tensors and merged bases appended, sharing checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxstack_functionalize.runtime.sharing import base_maker, sharing_guard

if TYPE_CHECKING:
    from collections.abc import Callable

    from fxstack_functionalize.trace import Traced

    Run = Callable[[list[Any]], Any]


def entry_point(traced: Traced, run: Run) -> Callable[..., Any]:
    """Return the callable with the captured graph's signature around ``run``, which takes all arguments listed."""
    lifted = traced.captured.lifted
    bases = base_maker(traced)
    guard = sharing_guard(traced)
    if bases is None and guard is None:
        if not lifted:
            return lambda *args: run([*args])
        return lambda *args: run([*args, *lifted])
    eager = traced.captured.graph_module

    def call(*args: Any) -> Any:
        arguments = [*args, *lifted]
        if guard is not None and not guard(arguments):
            return eager(*args)
        return run(arguments if bases is None else [*arguments, *bases(arguments)])

    return call
