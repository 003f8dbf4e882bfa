"""Run a graph in eager and compiled on copies of the same inputs, and name the first difference."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.fx import Node

from fxstack.minify.cases import Case, copies, edit_copy
from fxstack.torch_compat import pytree
from fxstack_capture.torch_side.global_state import state

# Limits: aliasing among outputs is not compared, nor are second derivatives.

TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.float16: 5e-3, torch.bfloat16: 4e-2}
"""Allowed difference relative to the largest element of a tensor, by the coarsest dtype of a graph."""
_WIDE = {
    **dict.fromkeys((torch.float32, torch.float16, torch.bfloat16), torch.float64),
    torch.complex64: torch.complex128,
}
_WIDER_METHODS = dict.fromkeys(("float", "half", "bfloat16"), "double")
Call = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Failure:
    """The way in which a compiled graph fails. Failures with equal ``kind`` and ``what`` count as the same.

    ``kind`` is ``differs``, ``raises``, ``dies`` or ``hangs``. ``what`` is the attribute that differs, the class of the
    exception with the function that raised it, or the signal. ``text`` is the whole message.
    """

    kind: str
    what: str
    text: str

    def is_like(self, other: Failure | None) -> bool:
        return other is not None and (self.kind, self.what) == (other.kind, other.what)

    def __str__(self) -> str:
        first = self.text.strip().splitlines()[0] if self.text.strip() else ""
        return f"{self.kind}: {self.what}{f' ({first})' if first and first != self.what else ''}"


def failure_of(error: BaseException) -> Failure:
    """Return the failure for an exception of a compiler, of compiled code or of ``torch.testing.assert_close``."""
    if isinstance(error, AssertionError) and (aspect := _aspect(str(error))):
        return Failure("differs", aspect, str(error))
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    frames = traceback.extract_tb(root.__traceback__)
    place = f" in {Path(frames[-1].filename).stem}.{frames[-1].name}" if frames else ""
    return Failure("raises", f"{type(root).__name__}{place}", str(root))


def _aspect(text: str) -> str:
    """Return the attribute that an error of ``assert_close`` names; "" for another error."""
    if "The values for attribute" in text:
        return text.partition("The values for attribute '")[2].partition("'")[0].removesuffix("()")
    if "not close!" in text or "not equal!" in text:
        return "values"
    return "structure" if "mismatch" in text or "no comparison pair" in text.lower() else ""


def observe(call: Call, case: Case) -> list[tuple[str, Any]]:
    """Call with copies of the inputs; return outputs, inputs after the call and gradients, each with its name."""
    leaves = copies(case.inputs)
    arguments = [x.clone() if i in case.copied else x for i, x in enumerate(leaves)]
    before = state.present()
    try:
        results = call(*arguments)
    finally:
        state.put_back(before)
    outputs = pytree.tree_leaves(results)
    differentiable = [x for x in outputs if isinstance(x, torch.Tensor) and x.requires_grad]
    if differentiable:
        torch.manual_seed(1)
        torch.autograd.backward(differentiable, [torch.randn_like(x) for x in differentiable])
    seen = [(f"output {i}", x) for i, x in enumerate(outputs)]
    seen += [(f"input {i} after the call", x) for i, x in enumerate(arguments)]
    tensors = [(i, x) for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) and x.requires_grad]
    return seen + [(f"gradient of input {i}", x.grad) for i, x in tensors]


def difference(compiled: Call, case: Case, reference: Call | None = None) -> Failure | None:
    """Compare a compiled graph with the graph of ``case`` in eager, or with ``reference``.

    An exception of eager is expected of both.
    """
    expected, error = _attempt(reference or case.graph.forward, case)
    actual, failure = _attempt(compiled, case)
    if error is not None or failure is not None:
        if error is not None and failure is not None and type(error) is type(failure):
            return None
        if failure is not None:
            return failure_of(failure)
        return Failure("differs", "exception", f"eager raises {error!r}, the compiled graph does not")
    for (name, value), (_, right) in zip(actual, expected, strict=False):
        try:
            _assert_close(value, right, tolerance(case, expected))
        except AssertionError as mismatch:
            mismatched = failure_of(AssertionError(f"{name}: {mismatch}"))
            if mismatched.what == "values" and is_rounding(case, actual, expected):
                continue
            return mismatched
    return None


def _attempt(call: Call, case: Case) -> tuple[list[tuple[str, Any]], Exception | None]:
    """Return the observations of a call and None, or an empty list and the error. Torch's generator keeps its state."""
    with torch.random.fork_rng():
        try:
            return observe(call, case), None
        except Exception as error:
            return [], error


def _assert_close(value: object, expected: object, limit: float) -> None:
    """Raise AssertionError if ``value`` differs from ``expected`` in metadata, or by more than ``limit``, relatively."""
    if isinstance(expected, torch.Tensor) and isinstance(value, torch.Tensor):
        if expected.layout is torch.strided and _strides(value) != _strides(expected):
            raise AssertionError(
                f"The values for attribute 'stride()' do not match: {value.stride()} != {expected.stride()}."
            )
        if value.requires_grad != expected.requires_grad:
            raise AssertionError(
                f"The values for attribute 'requires_grad' do not match: {value.requires_grad}."
            )
    elif not isinstance(expected, (bool, int, float, complex, type(None), torch.Tensor)):
        if value != expected:
            raise AssertionError(f"mismatch: {value!r} instead of {expected!r}")
        return
    exact = isinstance(expected, torch.Tensor) and not (expected.is_floating_point() or expected.is_complex())
    bounds = {"rtol": 0.0, "atol": 0.0} if exact else {"rtol": limit, "atol": limit * scale([expected])}
    torch.testing.assert_close(value, expected, **bounds, equal_nan=True)


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of dimensions that have more than one element."""
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    return tuple(stride for size, stride in sizes if size > 1) if tensor.numel() else ()


def scale(values: Sequence[object]) -> float:
    """Return the largest absolute value of finite elements, at least 1.

    It turns a relative tolerance into an absolute one.
    """
    largest = 1.0
    for value in values:
        if (
            isinstance(value, torch.Tensor)
            and value.numel()
            and (value.is_floating_point() or value.is_complex())
        ):
            sizes = value.detach().abs().double()
            largest = max(largest, float(sizes.where(sizes.isfinite(), 0.0).max()))
    return largest


def tolerance(case: Case, seen: Sequence[tuple[str, Any]]) -> float:
    """Return the tolerance for the coarsest dtype of tensors and of arguments of operators in ``case``."""
    dtypes = {x.dtype for _, x in seen if isinstance(x, torch.Tensor)}
    for node in case.graph.graph.nodes:
        values = pytree.tree_leaves((node.args, node.kwargs))
        dtypes |= {value for value in values if isinstance(value, torch.dtype)}
        if node.op == "call_method" and node.target in _WIDER_METHODS:
            dtypes.add(getattr(torch, node.target))
    for dtype in (torch.bfloat16, torch.float16):
        if any(str(dtype) in statement for statement in case.state):
            dtypes.add(dtype)
    wide = {torch.complex64: torch.float32, torch.complex128: torch.float64}
    return max((TOLERANCE[wide.get(d, d)] for d in dtypes if wide.get(d, d) in TOLERANCE), default=0.0)


def is_rounding(case: Case, actual: Sequence[tuple[str, Any]], expected: Sequence[tuple[str, Any]]) -> bool:
    """Whether the compiled results are about as close as eager's to the results in double precision."""
    try:
        with torch.random.fork_rng():
            exact = observe(*_in_double(case))
    except Exception:
        return False
    for (_, compiled), (_, eager), (_, right) in zip(actual, expected, exact, strict=True):
        if not isinstance(eager, torch.Tensor) or not eager.is_floating_point() or not eager.numel():
            continue
        size = scale([right])
        allowed, error = (
            float((x.detach().double() - right.detach()).abs().max()) for x in (eager, compiled)
        )
        # Random numbers of another precision are others: then eager is far from the exact results.
        if not allowed < 0.05 * size or not error <= 4 * allowed + tolerance(case, expected) * size:
            return False
    return True


def _in_double(case: Case) -> tuple[Call, Case]:
    """Return the graph and the case in double precision: inputs, dtypes in arguments, and conversions."""

    def wide(value: Any) -> Any:
        """Return a tensor or dtype in double precision, and any other value as it is."""
        if isinstance(value, torch.Tensor):
            widened = value.detach().to(_WIDE.get(value.dtype, value.dtype))
            return widened.requires_grad_(value.requires_grad)
        return _WIDE.get(value, value) if isinstance(value, torch.dtype) else value

    def widen(node: Node) -> None:
        """Let a node compute in double precision: its arguments, and a method such as ``float()``."""
        node.args, node.kwargs = pytree.tree_map(wide, (node.args, node.kwargs))
        if node.op == "call_method":
            node.target = _WIDER_METHODS.get(str(node.target), node.target)

    module = edit_copy(case.graph, widen)
    return module, Case(module, tuple(map(wide, case.inputs)), case.copied)
