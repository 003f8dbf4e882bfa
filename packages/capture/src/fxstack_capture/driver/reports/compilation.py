"""The id of a compilation, and the callbacks at its begin and end.

torch's logs, its structured trace and its callbacks identify a compilation by the number of its frame and the
number of the attempt (``0/1``). During a compilation, this id is in torch's compile context.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import count
from types import CodeType
from typing import Any, Final

from fxstack_capture.driver.code_history import CodeState
from fxstack_capture.driver.reports.recompiling import notify
from fxstack_capture.driver.reports.records import Observer
from fxstack_capture.torch_compat import CompileContext, CompileId, compile_context

_NUMBERS: Final = count()
"""The supply of first parts of ids, for code that has none yet."""


@contextmanager
def compilation(observer: Observer | None, code: CodeType, state: CodeState) -> Iterator[None]:
    """Give the compilation inside the block an id. Call the callbacks of the observer and of torch around it.

    ``code`` is the function that the observer gets.
    """
    if state.number is None:
        state.number = next(_NUMBERS)
    around = CompileContext.current_compile_id()  # under compiled autograd, the id of the backward pass
    number = {"frame_id": state.number, "frame_compile_id": state.compilations}
    state.compilations += 1
    context = CompileContext(CompileId(**number) if around is None else replace(around, **number))
    with compile_context(context), _callbacks_of_torch("DYNAMO"):
        notify(observer, "on_start", code)
        try:
            yield
        except BaseException as error:
            notify(observer, "on_end", error)
            raise
        notify(observer, "on_end", None)


@contextmanager
def compiled_later(context: object) -> Iterator[None]:
    """Compile a backward graph inside the block. Called when the program first runs the backward.

    ``context`` is the compile context of the forward, a result of ``present_compilation``.
    """
    with compile_context(context), _callbacks_of_torch("LAZY_BACKWARD"):
        yield


def present_compilation() -> Any:
    """Return torch's current compile context, for a later ``compiled_later``. None if nothing is being
    compiled.
    """
    return CompileContext.try_get()


def _callbacks_of_torch(trigger: str) -> AbstractContextManager[object]:
    """Return a context that calls the functions given to torch's ``on_compile_start`` and ``on_compile_end``.

    ``trigger`` is a name in torch's enumeration ``CallbackTrigger``: "DYNAMO" or "LAZY_BACKWARD".
    """
    module = sys.modules.get("torch._dynamo.callback")
    handler = getattr(module, "callback_handler", None)
    if module is None or handler is None or not (handler.start_callbacks or handler.end_callbacks):
        return nullcontext()
    callbacks: AbstractContextManager[object] = handler.install_callbacks(
        module.CallbackTrigger[trigger], str(CompileContext.current_compile_id())
    )
    return callbacks
