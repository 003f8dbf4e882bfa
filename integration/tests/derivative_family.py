"""Derivatives of compiled functions, and derivatives inside of compiled functions: every form with every function.

A form takes a function of two tensors that returns one tensor or two; ``differences`` runs the form in eager and compiled.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

import fxstack

Function = Callable[..., Any]
grad = torch.autograd.grad
STATE = torch.zeros(4)


def _dropout(x: torch.Tensor, w: torch.Tensor) -> Any:
    return (torch.nn.functional.dropout(x, 0.5) * w).sin().sum(-1), x * w


def _changes_state(x: torch.Tensor, w: torch.Tensor) -> Any:
    STATE.add_(1)
    return (x * w * STATE).sum(-1), w.exp() * x


def _in_place(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = x * 2
    y.mul_(w)
    return y.sin().sum(-1), y


def _linked(x: torch.Tensor, w: torch.Tensor) -> Any:
    y = (x * w).tanh()
    return (y * y).sum(-1), y


FUNCTIONS: dict[str, Function] = {
    "one": lambda x, w: (x.sin() * w).sum(-1),
    "two": lambda x, w: ((x.sin() * w).sum(-1), x * w),
    "matmul": lambda x, w: ((x @ w.t()).tanh()[:, 0], x.exp()),
    "norm": lambda x, w: (torch.nn.functional.layer_norm(x * w, (4,)).sum(-1), w.cos() * x),
    "softmax": lambda x, w: (torch.softmax(x * w, -1).log().sum(-1), x.relu() * w),
    "view": lambda x, w: ((x * w).t().sum(0), (x + w).t()),
    "linked": _linked,
    "in place": _in_place,
    "dropout": _dropout,
    "state": _changes_state,
}


def _arguments() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x, w = (torch.randn(3, 4, generator=generator) for _ in range(2))
    return x.requires_grad_(), w.requires_grad_()


def _many(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


def _first(result: Any) -> torch.Tensor:
    return result[0] if isinstance(result, tuple) else result


def _vmapped(fn: Function, dims: int = 1, **options: Any) -> Any:
    x, w = _arguments()
    y = _first(fn(x, w))

    def one(v: torch.Tensor) -> Any:
        return grad(y, (x, w), v, retain_graph=True)

    for _ in range(dims):
        one = torch.vmap(one, **options)
    return one(_many(*([2] * (dims - 1)), 5, 3))


def _batched(fn: Function, **options: Any) -> Any:
    x, w = _arguments()
    return grad(_first(fn(x, w)), (x, w), _many(5, 3), is_grads_batched=True, **options)


def _batched_tuple(fn: Function) -> Any:
    x, w = _arguments()
    result = pytree.tree_leaves(fn(x, w))
    tangents = [_many(2, *r.shape) for r in result]
    return grad(result, (x, w), tangents, is_grads_batched=True)


def _twice(fn: Function) -> Any:
    x, w = _arguments()
    (first,) = grad(_first(fn(x, w)).sum(), x, create_graph=True)
    return first, grad(first.pow(2).sum(), (x, w), allow_unused=True)


def _functional(name: str, **options: Any) -> Function:
    def form(fn: Function) -> Any:
        call = getattr(torch.autograd.functional, name)
        scalar = name in {"hessian", "hvp", "vhp"}
        target = (lambda x, w: _first(fn(x, w)).sum()) if scalar else fn
        given = () if name in {"jacobian", "hessian"} else (_arguments() if scalar else None,)
        if name == "vjp":
            given = (pytree.tree_map(torch.ones_like, fn(*_arguments())),)
        if name == "jvp":
            given = (_arguments(),)
        return call(target, _arguments(), *given, **options)

    return form


def _vjp(fn: Function) -> Any:
    result, pull = torch.func.vjp(fn, *_detached())
    return result, pull(pytree.tree_map(torch.ones_like, result))


def _mapped_vjp(fn: Function) -> Any:
    result, pull = torch.func.vjp(lambda x, w: _first(fn(x, w)), *_detached())
    return result, torch.vmap(pull)(_many(5, 3))


def _detached() -> tuple[torch.Tensor, ...]:
    return tuple(t.detach() for t in _arguments())


def _of_sum(fn: Function) -> Function:
    return lambda x, w: _first(fn(x, w)).sum()


FORMS: dict[str, Function] = {
    "vmap": _vmapped,
    "vmap chunks": lambda fn: _vmapped(fn, chunk_size=2),
    "vmap out_dims": lambda fn: _vmapped(fn, out_dims=1),
    "vmap different": lambda fn: _vmapped(fn, randomness="different"),
    "vmap twice": lambda fn: _vmapped(fn, dims=2),
    "batched": _batched,
    "batched tuple": _batched_tuple,
    "batched create_graph": lambda fn: _batched(fn, create_graph=True),
    "twice": _twice,
    "jacobian": _functional("jacobian"),
    "jacobian vectorized": _functional("jacobian", vectorize=True),
    "jacobian forward": _functional("jacobian", vectorize=True, strategy="forward-mode"),
    "jacobian create_graph": _functional("jacobian", create_graph=True),
    "hessian": _functional("hessian"),
    "hessian vectorized": _functional("hessian", vectorize=True),
    "functional vjp": _functional("vjp"),
    "functional jvp": _functional("jvp"),
    "hvp": _functional("hvp"),
    "vhp": _functional("vhp"),
    "func grad": lambda fn: torch.func.grad(_of_sum(fn), (0, 1))(*_detached()),
    "func grad_and_value": lambda fn: torch.func.grad_and_value(_of_sum(fn))(*_detached()),
    "func vjp": _vjp,
    "func vmap vjp": _mapped_vjp,
    "func jvp": lambda fn: torch.func.jvp(fn, _detached(), _detached()),
    "jacrev": lambda fn: torch.func.jacrev(fn, (0, 1))(*_detached()),
    "jacrev chunks": lambda fn: torch.func.jacrev(fn, chunk_size=2)(*_detached()),
    "jacfwd": lambda fn: torch.func.jacfwd(fn)(*_detached()),
    "func hessian": lambda fn: torch.func.hessian(_of_sum(fn))(*_detached()),
    "func vmap": lambda fn: torch.vmap(fn, randomness="same")(*_detached()),
    "func vmap in_dims": lambda fn: torch.vmap(lambda a, b: a * b * _of_sum(fn)(a[None], b[None]))(
        *_detached()
    ),
    "per-sample": lambda fn: torch.vmap(
        torch.func.grad(lambda a, b: _of_sum(fn)(a[None], b[None])), randomness="same"
    )(*_detached()),
    "linearize": lambda fn: torch.func.linearize(fn, *_detached())[1](*_detached()),
}

REFUSED = frozenset({"dropout", "state"})
"""Functions that cannot run again: a derivative that is differentiated again raises an error that says so."""
NAMED = "compiled graph cannot"


def cases() -> list[tuple[str, str, bool]]:
    """Return every form with every function: called compiled, and compiled as a whole."""
    inside = [name for name in FORMS if name.startswith(("func", "jac", "per"))]
    return [
        *((form, name, False) for form in FORMS for name in FUNCTIONS),
        *((form, name, True) for form in inside for name in FUNCTIONS),
    ]


def differences(form: str, name: str, whole: bool, backend: str = "aot_eager") -> str | None:
    """Return what differs from eager, None if nothing does; ``whole``: whether the form itself is compiled."""
    fn, run = FUNCTIONS[name], FORMS[form]
    if whole:
        compiled = lambda: fxstack.compile(lambda: run(fn), backend=backend)()  # noqa: E731
    else:
        compiled = lambda: run(fxstack.compile(fn, backend=backend))  # noqa: E731
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected, actual = _outcome(lambda: run(fn)), _outcome(compiled)
    if isinstance(actual, str) and NAMED in actual and not isinstance(expected, str):
        return None if name in REFUSED else actual
    if isinstance(expected, str) or isinstance(actual, str):
        same = isinstance(actual, str) and isinstance(expected, str)
        return None if same and actual == expected else f"{_short(actual)} is not {_short(expected)}"
    for got, wanted in zip(actual, expected, strict=True):
        same = got is wanted if wanted is None else torch.allclose(got, wanted, atol=1e-5)
        if not same or (wanted is not None and got.requires_grad != wanted.requires_grad):
            return f"a tensor: {_short(got)} is not {_short(wanted)}"
    return None


def _outcome(run: Function) -> Any:
    STATE.zero_()
    torch.manual_seed(5)
    try:
        return pytree.tree_leaves(run(), is_leaf=lambda leaf: leaf is None)
    except Exception as error:  # what is raised is compared
        return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _short(outcome: Any) -> str:
    return repr(outcome) if isinstance(outcome, str) else f"{repr(outcome)[:60]}..."
