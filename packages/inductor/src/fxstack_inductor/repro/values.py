"""Values as Python text: constants of a graph, and calls that make similar tensors."""

from __future__ import annotations

import builtins
from typing import Any

import torch

from fxstack_inductor import torch_compat
from fxstack_inductor.errors import ReproError
from fxstack_inductor.lower.nested.graphs import NestedGraph
from fxstack_inductor.repro.harness import extent
from fxstack_inductor.torch_compat import FakeTensor
from fxstack_inductor.torch_compat import get_qualified_name as _get_qualified_name

EXACT = 64
"""Largest number of elements of an integer tensor that is written exactly: it holds lengths, offsets or counts."""
OPERATOR_PACKAGES = frozenset({"aten", "prims", "prim", "higher_order"})
"""Namespaces of the operators that torch itself registers."""


def text_of(value: object) -> str:
    """Return a Python expression for ``value`` in a script that has imported torch, operator and math.

    Raises:
        ReproError: ``value`` cannot be written.
    """
    match value:
        case torch.Tensor():
            return tensor_text(value)
        case torch.SymInt() | torch.SymFloat() | torch.SymBool():
            return repr(_hint(value))
        case None | bool() | int() | float() | str():
            return repr(value)
        case complex():
            return f"complex({value.real!r}, {value.imag!r})"
        case torch.dtype() | torch.layout() | torch.memory_format():
            return str(value)
        case torch.device():
            return f"torch.device({str(value)!r})"
        case torch_compat.OperatorBase() | torch_compat.OpOverloadPacket():
            return _operator(value)
        case torch.nn.Module() | NestedGraph():
            raise ReproError(
                "an operator with a graph inside (such as torch.cond) cannot be written into a script; "
                "compile the function inside by itself to have its kernels"
            )
        case list():
            return f"[{', '.join(map(text_of, value))}]"
        case tuple():
            return f"({''.join(f'{text_of(v)}, ' for v in value)})"
    return _function(value)


def _operator(value: object) -> str:
    """Return the name of an operator below ``torch.ops``."""
    if isinstance(value, torch_compat.HigherOrderOperator):
        return f"torch.ops.higher_order.{value.name()}"
    return f"torch.ops.{str(value).replace('::', '.')}"


def _function(value: object) -> str:
    """Return the qualified name of a function of torch, operator, math or builtins; raise ``ReproError`` for others."""
    if isinstance(value, type):
        name = str(value.__name__)
        if getattr(builtins, name, None) is value:
            return name
    if callable(value) and hasattr(value, "__name__") and getattr(value, "__module__", None):
        name = str(_get_qualified_name(value)).replace("_operator.", "operator.")
        if name.partition(".")[0] in {"torch", "operator", "math"}:
            return name
    raise ReproError(
        f"a value of type {type(value).__name__} cannot be written into a script: {value!r:.200}"
    )


def foreign(value: object) -> str | None:
    """Return the name of an operator that torch does not register: a script must import its module. Else None."""
    if not isinstance(value, torch_compat.OpOverload) or value.namespace in OPERATOR_PACKAGES:
        return None
    return str(value)


def _hint(value: Any) -> Any:
    """Return the traced value of a symbolic number; raise ``ReproError`` if tracing did not know it."""
    hint = value.node.hint
    if hint is None:
        raise ReproError(f"{value} is only known when the graph runs; give example inputs with data")
    return hint


def whole(sizes: Any) -> tuple[int, ...]:
    """Return sizes as numbers; a symbolic size becomes its traced value."""
    return tuple(int(_hint(s)) if isinstance(s, torch.SymInt) else int(s) for s in sizes)


def tensor_text(tensor: torch.Tensor) -> str:
    """Return a call of ``make_random`` or ``make_exact`` for a tensor of equal layout and dtype, and similar values.

    Raises:
        ReproError: the tensor is not strided, or not on CPU.
    """
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        raise ReproError(f"scripts have strided tensors on CPU, not {tensor.layout} on {tensor.device}")
    shape, stride = whole(tensor.shape), whole(tensor.stride())
    layout = f"{shape}, {stride}, {tensor.dtype}"
    if isinstance(tensor, FakeTensor):
        return f"make_random({layout}, {_unseen(tensor.dtype)})"
    with torch.no_grad():
        memory = tensor.detach().as_strided((extent(shape, stride),), (1,))
        if _written(memory):
            return f"make_exact({memory.tolist()}, {layout})"
        return f"make_random({layout}, {_seen(memory)})"


def _written(memory: torch.Tensor) -> bool:
    """Whether all elements are written into the script: few integers, one float, no complex number."""
    dtype = memory.dtype
    most = 1 if dtype.is_floating_point else 0 if dtype.is_complex else EXACT
    return int(memory.numel()) <= most


def _unseen(dtype: torch.dtype) -> str:
    """Return arguments of ``make_random`` without data: normal floats, even booleans, indices in range for every size but 1."""
    if dtype.is_floating_point or dtype.is_complex:
        return "low=-inf, high=inf"
    return "low=0, high=1, mean=0.5"


def _seen(memory: torch.Tensor) -> str:
    """Return arguments of ``make_random`` that describe the data: range, mean, deviation, and whether it is sorted."""
    if memory.dtype is torch.bool:
        return f"low=0, high=1, mean={memory.double().mean().item():.6g}"
    if memory.dtype.is_complex:
        parts = torch.view_as_real(memory.resolve_conj().to(torch.complex128))
        return f"low=-inf, high=inf, {_moments(parts)}"
    if memory.dtype.is_floating_point:
        wide = memory.double()
        wide = wide[wide.isfinite()]
        if not wide.numel():
            return _unseen(memory.dtype)
        return f"low={wide.min().item()!r}, high={wide.max().item()!r}, {_moments(wide)}"
    low, high = int(memory.min()), int(memory.max())
    ordered = bool((memory[1:] >= memory[:-1]).all())
    return f"low={low}, high={high}" + (", ordered=True" if ordered else "")


def _moments(wide: torch.Tensor) -> str:
    """Return mean and standard deviation as arguments of ``make_random``."""
    std = wide.std(correction=0).item()
    return f"mean={wide.mean().item():.6g}, std={std:.6g}"
