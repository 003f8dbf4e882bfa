"""Torch-function modes of the program, entered inside or around: compiled is as eager, down to the calls they see."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from overriding import LOG, LogMode, Programs, logged, run, same
from torch.overrides import TorchFunctionMode

import fxstack_capture as fx

p = PROGRAMS = Programs()


@p()
def mode_in(x, y):
    with LogMode() as m:
        a = y + 1
        b = x + y
    return a, b, m.count


@p()
def modes_in(x, y):
    with LogMode("a"), LogMode("b") as b:
        c = torch.zeros(3) + y
    return c, b.count, y + 1


@p(graphs=None)
def mode_break(x, y):
    with LogMode("a") as m:
        a = y + 1
        print(end="")
        fx.graph_break()
        b = a * 2
    return a, b, m.count, b + 1


@p()
def outer(x, y):
    with LogMode("out"):
        return inner(x, y)


def inner(x, y):
    return x + y, torch.zeros(3)


class Replace(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.sin:
            func = torch.cos
        return func(*args, **(kwargs or {}))


@p(make=lambda: (torch.ones(3),))
def replace(x):
    with Replace():
        a = torch.sin(x)
        b = x.sin()
    return a, b, torch.sin(x)


class Raises(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.sin:
            raise ValueError("no sin")
        return func(*args, **(kwargs or {}))


@p(make=lambda: (torch.ones(3),))
def raises(x):
    try:
        with Raises():
            torch.sin(x)
    except ValueError as e:
        return x * 2, str(e)


@p(make=lambda: (torch.ones(3),), graphs=None)
def raises2(x):
    with Raises():
        y = x * 2
        return torch.sin(y)


class Redisp(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        with self:
            LOG.append(func)
            if len(LOG) < 4:
                return func(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


@p(make=lambda: (torch.ones(3),))
def redisp(x):
    with Redisp():
        return torch.sin(x)


@p(make=lambda: (torch.ones(3),))
def device(x):
    with torch.device("cpu"):
        a = torch.zeros(3)
    return a + x


@p(make=lambda: (torch.ones(3),))
def device_meta(x):
    with torch.device("meta"):
        a = torch.zeros(3)
    return a.device.type, x + 1


@p()
def ng_mode(x, y):
    with LogMode("m"), torch.no_grad():
        return y * x


@p()
def dis_all(x, y):
    with LogMode("m"), torch._C.DisableTorchFunction():
        return x + y


@p()
def tens(x, y):
    with LogMode("m"):
        return (torch.tensor([1.0, 2.0]), torch.arange(3), torch.full((2,), 1.0), torch.randn(2).shape)


@pytest.mark.parametrize(("fn", "make", "graphs", "calls"), PROGRAMS)
def test_same_as_eager(fn: Any, make: Any, graphs: int | None, calls: int) -> None:
    same(fn, make, graphs=graphs, calls=calls)


def _devices(x: torch.Tensor) -> list[torch.device]:
    with torch.device("meta") as meta:
        made = [torch.ones(2), torch.empty_like(x), torch.zeros(2, device="cpu")]
        with torch.device("cpu"):
            made.append(torch.rand(2))
        made.append(torch.nn.Linear(2, 2).weight)
    return [meta, *(tensor.device for tensor in (*made, torch.ones(2), x + 1))]


def _tensors_and_devices(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    with torch.device("meta"):
        inner = torch.ones(2)
    return inner, torch.ones(2), x + 1


@pytest.mark.parametrize("outer", ["cpu", "meta"])
def test_tensors_are_made_on_the_device_of_their_region(outer: str) -> None:
    compiled = fx.optimize(fullgraph=True)(_tensors_and_devices)
    x = torch.ones(3)
    assert fx.optimize(fullgraph=True)(_devices)(x) == _devices(x)
    with torch.device(outer):
        expected = [t.device for t in _tensors_and_devices(x)]
        assert [t.device for t in compiled(x)] == expected
    assert torch._C._len_torch_function_stack() == 0


class Scale(TorchFunctionMode):
    """Products are larger."""

    def __init__(self, factor: int) -> None:
        super().__init__()
        self.factor = factor

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * self.factor if func is torch.Tensor.mul else result


def _around(modes: Any, fn: Any) -> list[Any]:
    """What calls of ``fn`` under each of ``modes`` give, and what the modes see."""
    seen = []
    for mode in modes:
        LOG.clear()
        x = torch.ones(3)
        with mode:
            result = fn(x)
        seen.append((result.tolist(), list(LOG)))
    return seen


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).relu()


@pytest.mark.parametrize("make", [LogMode, lambda: Scale(3)])
def test_modes_around_calls_are_objects_like_others(make: Any) -> None:
    graphs: list[Any] = []
    compiled = fx.optimize(lambda module, _: graphs.append(module) or module.forward)(_doubled)
    assert _around([make() for _ in range(4)], compiled) == _around([make() for _ in range(4)], _doubled)
    assert len(graphs) == 1


def test_the_state_of_a_mode_is_guarded() -> None:
    compiled = fx.optimize(lambda module, _: module.forward)(_doubled)
    for factor in (1, 2, 2, 3, 4, 1):
        assert _around([Scale(factor)], compiled) == _around([Scale(factor)], _doubled)
    assert compiled(torch.ones(3)).tolist() == [2.0] * 3


def test_errors_leave_the_stack_of_modes_as_it_was() -> None:
    class Refuses(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise KeyError("no")

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        with Refuses():
            return torch.cos(y)

    with pytest.raises(KeyError, match="no"):
        fx.optimize(lambda module, _: module.forward)(program)(torch.ones(3))
    assert torch._C._len_torch_function_stack() == 0


@contextmanager
def _within(names: str) -> Iterator[None]:
    """Nested contexts: ``mode``, a mode that logs and scales; ``all``, ``classes``: these overrides are off."""
    with ExitStack() as stack:
        for name in names.split():
            stack.enter_context(_OUTER[name]())
        yield


_OUTER = {
    "mode": lambda: Scale(3),
    "all": torch._C.DisableTorchFunction,
    "classes": torch._C.DisableTorchFunctionSubclass,
}


def _switches() -> tuple[Any, ...]:
    c = torch._C
    state = c._is_torch_function_enabled(), c._is_torch_function_all_disabled()
    return *state, c._is_torch_function_mode_enabled(), c._len_torch_function_stack()


def _disabled_inside(x: torch.Tensor, y: torch.Tensor) -> Any:
    with LogMode("m"):
        with torch._C.DisableTorchFunction():
            a = x.mul(y), torch.ones(3), *_switches()
            with LogMode("inner"), torch._C.DisableTorchFunctionSubclass():
                b = x.mul(2), *_switches()
        return a, b, x.mul(y), *_switches()


def _disabled_over_break(x: torch.Tensor, y: torch.Tensor) -> Any:
    with LogMode("m") as mode, torch._C.DisableTorchFunction():
        a = x.mul(y)
        fx.graph_break()
        b = x.mul(3), *_switches()
    return a, b, x.mul(y), mode.count, *_switches()


def _disabled_by_callee(x: torch.Tensor, y: torch.Tensor) -> Any:
    with Scale(2):
        try:
            with torch._C.DisableTorchFunction():
                _breaks_and_raises(x)
        except KeyError:
            fx.graph_break()
        return x.mul(y), *_switches()


def _breaks_and_raises(x: torch.Tensor) -> None:
    with Scale(5), torch._C.DisableTorchFunctionSubclass():
        fx.graph_break()
        raise KeyError(x.mul(2))


def _disabled_by_generator(x: torch.Tensor, y: torch.Tensor) -> Any:
    def products() -> Iterator[torch.Tensor]:
        with torch._C.DisableTorchFunction():
            yield x.mul(y)
            yield x.mul(2)

    return (
        [product.mul(3) for product in products()],
        torch.stack(sorted([x, y], key=torch.sum)),
        *_switches(),
    )


@pytest.mark.parametrize("names", ["all", "classes", "mode", "mode all", "all mode", "mode classes"])
@pytest.mark.parametrize(
    "fn", [_disabled_inside, _disabled_over_break, _disabled_by_callee, _disabled_by_generator]
)
def test_overrides_are_off_where_eager_has_them_off(fn: Any, names: str) -> None:
    def around(called: Any) -> Any:
        def call(*args: Any) -> Any:
            with _within(names):
                return called(*args)

        return call

    make = logged(grad=False)
    assert run(around(fx.optimize()(fn)), make, 2) == run(around(fn), make, 2)
    assert torch._C._len_torch_function_stack() == 0
    assert torch._C._is_torch_function_enabled()
