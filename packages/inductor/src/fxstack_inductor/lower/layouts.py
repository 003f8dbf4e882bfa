"""Layouts: read result strides from the graph, and recognise views that are strided windows of memory."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

import torch
from torch.fx import Node as FxNode

from fxstack_inductor.errors import VerificationError
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ZERO, Expr, Var, recombine
from fxstack_inductor.ir.nodes import Computed, Layout, Node, View, resolve
from fxstack_inductor.ir.ordered import Scatter
from fxstack_inductor.lower.host.symbols import size_expr
from fxstack_inductor.lower.node_queries import is_dense

# Limits: strides of dimensions of size 1 may differ from eager's in results of empty_like, in results of
# operators that are neither elementwise nor copies (Fourier transforms), and in gradients. With symbolic
# sizes, the operators of fxstack_interchange.torch_facts.layouts have the strides of torch's fake kernels.


def layout_of(value: torch.Tensor) -> Layout:
    """Return the sizes and strides of a fake value as a layout; a sparse tensor gets strides of zero."""
    shape = tuple(size_expr(size) for size in value.shape)
    if value.layout is not torch.strided:
        return Layout(shape, tuple(ZERO for _ in shape), value.dtype, value.device)
    strides = tuple(size_expr(stride) for stride in value.stride())
    return Layout(shape, strides, value.dtype, value.device)


Kind = tuple[torch.device, torch.dtype | None]
"""A device and a dtype; None in place of the dtype if strides alone do not address a tensor."""


class _Facts(NamedTuple):
    """The facts about a fake value. ``number``: equal for equal facts."""

    layout: Layout
    kind: Kind
    number: int


class FakeFacts:
    """Facts about the fake values of a graph, each found once: reading a fake is slow, and equal parts of a graph share fakes.

    The graph must keep the values alive.
    """

    def __init__(self) -> None:
        self._facts: dict[int, _Facts] = {}
        self._equal: dict[Hashable, _Facts] = {}
        """What the fakes of static sizes say -> the facts."""
        self._numbers: dict[Hashable, int] = {}

    def layout(self, value: torch.Tensor) -> Layout:
        """Return ``layout_of(value)``."""
        return self._of(value).layout

    def number(self, value: torch.Tensor) -> int:
        """Return a number that tensors of equal layout and equal kind have in common."""
        return self._of(value).number

    def kind(self, value: torch.Tensor) -> Kind:
        """Return the kind of a tensor."""
        return self._of(value).kind

    def _of(self, value: torch.Tensor) -> _Facts:
        known = self._facts.get(id(value))
        if known is None:
            known = self._facts[id(value)] = self._found(value)
        return known

    def _found(self, value: torch.Tensor) -> _Facts:
        """Read the facts of a tensor."""
        if value.layout is not torch.strided or value._has_symbolic_sizes_strides:
            return self._numbered(value)
        key = (value.shape, value.stride(), value.dtype, value.device, value.is_neg(), value.is_quantized)
        known = self._equal.get(key)
        if known is None:
            known = self._equal[key] = self._numbered(value)
        return known

    def _numbered(self, value: torch.Tensor) -> _Facts:
        layout = layout_of(value)
        kind = value.device, value.dtype if is_dense(value, (value.dtype,)) else None
        return _Facts(layout, kind, self._numbers.setdefault((layout, kind), len(self._numbers)))


def check_layout(node: FxNode, result: Node, layout: Layout) -> None:
    """Check the result of a rule, for each lowered node: it must have the traced shape and dtype.

    Raises:
        VerificationError: shape or dtype differ, which is a defect of the rule.
    """
    pairs = [(a.as_int(), b.as_int()) for a, b in zip(result.shape, layout.shape, strict=False)]
    wrong = len(result.shape) != len(layout.shape) or any(
        a is not None and b is not None and a != b for a, b in pairs
    )
    if wrong or result.dtype != layout.dtype:
        raise VerificationError(
            f"node {node.name}: the lowering of {node.target} gives {result.shape} {result.dtype}, "
            f"the graph says {layout.shape} {layout.dtype}"
        )


def set_layout(result: Node, layout: Layout) -> None:
    """Set the layout of ``result``.

    For a view that inserts reduced dimensions again, set the strides of its base as well.
    """
    shape = tuple(
        traced if traced == 1 else size for size, traced in zip(result.shape, layout.shape, strict=True)
    )
    result.layout = Layout(shape, layout.stride, layout.dtype, layout.device)
    if isinstance(result, Scatter):
        result.init.layout = result.layout
    if isinstance(result, View) and isinstance(result.base, Computed) and result.base.origin == result.origin:
        old = result.base.layout
        strides = list(old.stride)
        for k, (coord, extent) in enumerate(zip(result.coords, old.shape, strict=True)):
            if extent == 1:
                continue
            if coord not in result.index:
                return
            strides[k] = layout.stride[result.index.index(coord)]
        result.base.layout = Layout(old.shape, tuple(strides), old.dtype, old.device)


def strided_view(view: View) -> tuple[Node, Expr] | None:
    """Return base and offset of ``view`` if it is a strided window of its base's memory, else None.

    Such a view needs no copy for an ATen call: ``as_strided`` makes it.
    """
    base = view.memory
    if view.window is None or view.window[0] is not view.layout or view.window[1] is not base.layout:
        view.window = view.layout, base.layout, _strided_view(view)
    return view.window[2]


def _strided_view(view: View) -> tuple[Node, Expr] | None:
    base, coords = resolve(view, view.index)
    if isinstance(base, View):
        return None
    flat = sum((c * s for c, s in zip(coords, base.layout.stride, strict=True)), ZERO)  # type: ignore[arg-type,operator]
    flat = offset = recombine(flat)
    for index, size, stride in zip(view.index, view.shape, view.layout.stride, strict=True):
        if size in (0, 1):
            continue
        var = index.as_var()
        coefficient = None if var is None else flat.coefficient(var)
        if var is None or coefficient is None or coefficient != stride:
            return None
        offset = offset - index * stride
    if any(isinstance(a, Var) and a.kind is VarKind.LOOP for a in offset.atoms()):
        return None
    return base, offset
