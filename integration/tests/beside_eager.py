"""Runs a program twice, in eager torch and compiled, and compares everything that a user could observe.

A program is a function of one argument, ``compile``: the identity in the eager run. It builds its own state,
calls what it compiled as often as it likes, and returns whatever should be compared.
"""

from __future__ import annotations

import dataclasses
import random
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import fxstack

Program = Callable[[Callable[[Any], Any]], Any]


def beside_eager(
    program: Program, *, graphs: int | None = None, breaks: int | None = None, **options: Any
) -> None:
    """Assert that the compiled run is observably the eager run; optionally in so many graphs and breaks."""
    expected = _observe(program, lambda fn: fn)
    compiled: list[Any] = []

    def compile_(fn: Any, **more: Any) -> Any:
        compiled.append(fxstack.compile(fn, **{**options, **more}))
        return compiled[-1]

    actual = _observe(program, compile_)
    _compare(actual, expected, "result")
    logs = [fxstack.compile_log(fn) for fn in compiled]
    if breaks is not None:
        reasons = "\n".join(str(record) for log in logs for record in log.breaks)
        assert sum(log.break_count for log in logs) == breaks, reasons
    if graphs is not None:
        assert sum(log.graph_count for log in logs) == graphs, "number of graphs"


class Programs:
    """The programs of one test file: ``@programs(...)`` adds one with the options of its ``beside_eager``.

    ``tests()``, assigned to a name that pytest collects, is one test for each.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[Program, dict[str, Any]]] = {}

    def __call__(self, **options: Any) -> Callable[[Program], Program]:
        def register(fn: Program) -> Program:
            assert fn.__name__ not in self._found, f"two programs are called {fn.__name__}"
            self._found[fn.__name__] = (fn, options)
            return fn

        return register

    def tests(self) -> Callable[[str], None]:
        @pytest.mark.parametrize("name", self._found)
        def test(name: str) -> None:
            fn, options = self._found[name]
            beside_eager(fn, **options)

        return test


@dataclasses.dataclass
class Observed:
    """What a run shows: its result or exception, how tensors share memory, and the generators' state."""

    outcome: Any
    sharing: Any
    random_state: Any


def _observe(program: Program, compile_: Callable[[Any], Any]) -> Observed:
    torch.manual_seed(0)
    random.seed(0)
    try:
        outcome = ("returned", program(compile_))
    except Exception as error:  # the exception is part of what is compared
        outcome = ("raised", describe(error))
    state = (torch.get_rng_state(), random.getstate(), torch.is_grad_enabled())
    return Observed(outcome, _sharing(outcome), state)


def describe(error: BaseException) -> tuple[str, str]:
    return type(error).__name__, str(error)


def attempt(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result, or the type and text of the exception: for programs that go on after an error."""
    try:
        return fn(*args, **kwargs)
    except Exception as error:
        return describe(error)


def _children(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        return [(".grad", value.grad)] if value.is_leaf and value.grad is not None else []
    if isinstance(value, dict):
        return [(f"[{key!r}]", item) for key, item in value.items()]
    if isinstance(value, (list, tuple, deque)):
        return [(f"[{index}]", item) for index, item in enumerate(value)]
    if isinstance(value, torch.nn.Module):
        return [(f".{name}", item) for name, item in value.state_dict(keep_vars=True).items()]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return [(f".{field.name}", getattr(value, field.name)) for field in fields]
    if isinstance(value, types.SimpleNamespace):
        return _children(vars(value))
    return []


def _walk(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    for _name, child in _children(value):
        yield from _walk(child)


def _sharing(value: Any) -> list[Any]:
    """For each tensor in order: the first that is it, the first on its storage, whose view it is."""
    tensors = [t for t in _walk(value) if t.layout is torch.strided]
    objects, storages = [id(t) for t in tensors], [_storage(t) for t in tensors]
    bases = [objects.index(id(t._base)) if id(t._base) in objects else t._is_view() for t in tensors]
    return [(objects.index(id(t)), storages.index(_storage(t)), base) for t, base in zip(tensors, bases)]


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


_TENSOR_FACTS = ("dtype", "shape", "requires_grad", "is_leaf", "layout", "device")


def _compare(actual: Any, expected: Any, path: str) -> None:
    same_class = type(actual).__qualname__ == type(expected).__qualname__  # a local class is made twice
    assert same_class, f"{path}: {actual!r} is not {expected!r}"
    if isinstance(expected, torch.Tensor):
        _compare_tensors(actual, expected, path)
    got, wanted = _children(actual), _children(expected)
    assert [name for name, _ in got] == [name for name, _ in wanted], path
    for (name, mine), (_, theirs) in zip(got, wanted):
        _compare(mine, theirs, path + name)
    if not wanted and not isinstance(expected, (torch.Tensor, torch.nn.Module, OrderedDict)):
        assert actual == expected or actual != actual, f"{path}: {actual!r} is not {expected!r}"


def _compare_tensors(actual: torch.Tensor, expected: torch.Tensor, path: str) -> None:
    for fact in _TENSOR_FACTS:
        got, wanted = getattr(actual, fact), getattr(expected, fact)
        assert got == wanted, f"{path}.{fact}: {got} is not {wanted}"
    if expected.layout is torch.strided:
        assert _strides(actual) == _strides(expected), f"{path}.stride(): {actual.stride()}"
        assert actual.storage_offset() == expected.storage_offset(), f"{path}.storage_offset()"
    torch.testing.assert_close(
        actual.detach(), expected.detach(), equal_nan=True, msg=lambda text: f"{path}: {text}"
    )


def _strides(tensor: torch.Tensor) -> list[int]:
    return [s for size, s in zip(tensor.shape, tensor.stride()) if size > 1 and tensor.numel()]
