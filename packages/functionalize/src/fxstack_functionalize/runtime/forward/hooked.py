"""Calls of a compiled graph under saved-tensor hooks: one compiled pair of graphs for each pair of hooks.

Each call looks up the present hooks, so graphs are never used with other hooks than their own. If hooks
cannot be traced, autograd calls them on the saved tensors of the plain forward, after one warning. A compiled
backward reads memory with the traced dtype, size and strides, but eager accepts any unpacked tensor:
``unpacked_checker`` corrects strides, and raises for other differences.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from threading import RLock
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.hooks.identity import HookReader, NotTraceableError
from fxstack_functionalize.options import SavedTensorHooks
from fxstack_functionalize.tracer.tensor_metadata import Example, dense_like
from fxstack_interchange.user_warnings import warn_user

Apply = Callable[..., Sequence[Any]]
Hooks = tuple[Callable[[Any], Any], Callable[[Any], Any]]

top_hooks: Callable[[bool], Hooks | None] = torch_compat.top_saved_tensors_default_hooks
set_tracing: Callable[[bool], bool] = torch_compat.saved_tensors_hooks_set_tracing
LIMIT = 8
"""The number of different pairs of hooks that are compiled. Further pairs run in eager."""
TORCH = str(Path(torch.__file__).parent)


class HookedCalls:
    """Finds the function for the present hooks.

    ``build`` compiles the graphs with a pair of hooks inlined. ``plain`` is the function for hooks that
    cannot be inlined.
    """

    def __init__(self, mode: SavedTensorHooks, build: Callable[[Hooks], Apply], plain: Apply) -> None:
        self._mode = mode
        self._build = build
        self._plain = plain
        self._reader = HookReader()
        self._made: dict[Hashable, Apply | None] = {}
        self._warned: set[Any] = set()
        self._lock = RLock()

    def __call__(self, hooks: Hooks, args: Sequence[Any]) -> Sequence[Any]:
        apply = self.find(hooks)
        if apply is None:
            return self._plain(*args)
        was_tracing = set_tracing(True)
        try:
            return apply(*args)
        finally:
            set_tracing(was_tracing)

    def find(self, hooks: Hooks) -> Apply | None:
        """Return the function with ``hooks`` inlined, compiled now if needed; None if they run in eager."""
        if self._mode == SavedTensorHooks.EAGER:
            return None
        try:
            key = tuple(self._reader.identity(hook) for hook in hooks)
        except NotTraceableError as error:
            self._warn(hooks, str(error))
            return None
        with self._lock:
            if key not in self._made:
                self._made[key] = self._make(hooks)
            return self._made[key]

    def _make(self, hooks: Hooks) -> Apply | None:
        """Compile the graphs with ``hooks`` inlined.

        If the hooks cannot be traced, or too many pairs are compiled, warn and return None.
        """
        if len(self._made) >= LIMIT:
            self._warn(hooks, f"more than {LIMIT} different pairs of hooks were used with this graph")
            return None
        try:
            return self._build(hooks)
        except NotTraceableError as error:
            self._warn(hooks, str(error))
            return None

    def _warn(self, hooks: Hooks, reason: str) -> None:
        """Warn once for each pack hook of the program that the hooks run in eager."""
        code = getattr(hooks[0], "__code__", None)
        if code in self._warned or (code is not None and code.co_filename.startswith(TORCH)):
            return
        self._warned.add(code)
        where = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
        warn_user(
            f"fxstack: the saved-tensor hooks {_name(hooks[0])}{where} and {_name(hooks[1])} are called in eager "
            f"around a compiled graph: {reason}.\n"
            "  why: a hook is compiled into the graph only if its result follows from its argument and constants alone.\n"
            "  fix: write the hook without effects and outside state; or set "
            'AotOptions(saved_tensor_hooks="eager") if this is what you want',
            UserWarning,
        )


def _name(hook: object) -> str:
    return str(getattr(hook, "__qualname__", type(hook).__name__))


def unpacked_checker(examples: Sequence[Example]) -> Callable[[Sequence[Any]], list[torch.Tensor]]:
    """Return a function that checks unpacked tensors against ``examples`` and gives them their strides.

    Raises (the function): RuntimeError if a dtype, device or size differs.
    """
    fixers = [dense_like(example) for example in examples]

    def check(saved: Sequence[Any]) -> list[torch.Tensor]:
        """Return the unpacked values, each checked against the value that the graph saved."""
        return [
            _checked(value, example, fix) for value, example, fix in zip(saved, examples, fixers, strict=True)
        ]

    return check


def _checked(
    value: torch.Tensor, example: Example, fix: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Return the unpacked tensor with the strides of ``example``. Raise RuntimeError for another dtype or size."""
    is_same_kind = value.dtype == example.dtype and value.device.type == example.device.type
    if not is_same_kind or not _agree(value.shape, example.shape):
        raise RuntimeError(
            f"a saved-tensor hook unpacked a {value.dtype} tensor of size {[*value.shape]} on {value.device}; the compiled "
            f"backward needs {example.dtype} of size {[*example.shape]} on {example.device}.\n"
            "  why: the backward was compiled for the tensor that was packed.\n"
            "  fix: let the unpack hook return a tensor of the size, dtype and device of the packed one"
        )
    if example.layout is not torch.strided or _agree(value.stride(), example.stride()):
        return value
    return fix(value)


def _agree(numbers: Sequence[int], expected: Sequence[Any]) -> bool:
    """Whether ``numbers`` equal ``expected``, apart from symbolic numbers in ``expected``."""
    return len(numbers) == len(expected) and all(
        isinstance(b, torch.SymInt) or a == b for a, b in zip(numbers, expected, strict=True)
    )
