"""Run a program over tensors of users' classes in plain Python and compiled: results, gradients, logs must be the same."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten

import fxstack_capture as fx
from fxstack_capture.driver.errors import TracingWarning

if TYPE_CHECKING:
    from collections.abc import Callable

LOG: list[Any] = []


class Logged(torch.Tensor):
    """Writes down what is called, then does what torch does."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        LOG.append((cls.__name__, func, tuple(t.__name__ for t in types), len(args)))
        return super().__torch_function__(func, types, args, kwargs)

    def doubled(self) -> torch.Tensor:
        return self * 2

    @property
    def top(self) -> torch.Tensor:
        return self.max()

    @classmethod
    def of(cls, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.as_subclass(cls)


class Derived(Logged):
    pass


class Plain(torch.Tensor):
    pass


class LogMode(TorchFunctionMode):
    """Writes down what is called."""

    def __init__(self, name: str = "mode") -> None:
        super().__init__()
        self.name = name
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        LOG.append((self.name, func, tuple(t.__name__ for t in types), len(args)))
        return func(*args, **(kwargs or {}))


def described(value: Any) -> Any:
    """What can be compared of a result."""
    if not isinstance(value, torch.Tensor):
        return value
    with torch._C.DisableTorchFunction():
        plain = value.detach().as_subclass(torch.Tensor)
        own = {name: described(item) for name, item in vars(value).items()}
        facts = (type(value), value.dtype, value.stride(), value.requires_grad, value.is_leaf)
        # gradients of several uses may be added in another order
        numbers = [round(number, 4) for number in plain.double().flatten().tolist()]
        return (*facts, tuple(plain.shape), value._is_view(), own, numbers)


def run(fn: Callable[..., Any], make: Callable[[], tuple[Any, ...]], calls: int) -> list[Any]:
    """Everything that can be seen of ``calls`` calls, with gradients."""
    torch.manual_seed(0)
    seen: list[Any] = []
    args = make()
    for _ in range(calls):
        LOG.clear()
        try:
            result = fn(*args)
        except Exception as error:
            seen.append((type(error), str(error), list(LOG)))
            continue
        log = list(LOG)
        flat, spec = tree_flatten(result)
        seen.append((str(spec), [described(leaf) for leaf in flat], log))
        with torch._C.DisableTorchFunction():
            wanting = [t for t in flat if isinstance(t, torch.Tensor) and t.requires_grad]
            if wanting:
                torch.autograd.backward([t.sum() for t in wanting])
    with torch._C.DisableTorchFunction():
        for arg in args:
            if isinstance(arg, torch.Tensor):
                seen.append((described(arg), described(arg.grad) if arg.is_leaf else None))
    return seen


def same(
    fn: Callable[..., Any],
    make: Callable[[], tuple[Any, ...]],
    *,
    graphs: int | None = 1,
    calls: int = 2,
    backend: Any = None,
) -> None:
    """Compiled is as eager; ``graphs``: how many are captured (None: any number)."""
    captured: list[Any] = []

    def counting(module: Any, inputs: Any) -> Any:
        captured.append(module)
        return module.forward if backend is None else backend(module, inputs)

    wanted = run(fn, make, calls)
    with warnings.catch_warnings():
        warnings.simplefilter("error", TracingWarning)
        got = run(fx.optimize(counting)(fn), make, calls)
    assert got == wanted
    assert graphs is None or len(captured) == graphs


def logged(cls: type = Logged, *, grad: bool = True) -> Callable[[], tuple[Any, ...]]:
    """One tensor of ``cls`` and a plain one."""

    def make() -> tuple[Any, ...]:
        x = torch.arange(6.0).reshape(2, 3).as_subclass(cls).requires_grad_(grad)
        return x, torch.ones(3)

    return make


class Programs(list):
    """Programs to run, as parameters of a test; calling it gives a decorator that adds one.

    ``graphs`` is how many it makes, ``make`` makes its arguments.
    """

    def __call__(self, graphs=1, make=None, calls=2):
        def register(fn):
            self.append(pytest.param(fn, make or logged(), graphs, calls, id=fn.__name__))
            return fn

        return register
