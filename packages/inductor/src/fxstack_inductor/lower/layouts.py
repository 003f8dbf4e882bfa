"""Layouts: read result strides from the graph, and recognise views that are strided windows of memory."""

from __future__ import annotations

from collections.abc import Hashable

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


class FakeFacts:
    """Facts about the fake values of a graph, each found once: reading a fake is slow, and equal parts of a graph share fakes.

    The graph must keep the values alive.
    """

    def __init__(self) -> None:
        self._layouts: dict[int, Layout] = {}
        self._kinds: dict[int, tuple[torch.device, torch.dtype | None]] = {}
        self._numbers: dict[int, int] = {}
        self._number_of: dict[Hashable, int] = {}

    def layout(self, value: torch.Tensor) -> Layout:
        """Return ``layout_of(value)``."""
        layout = self._layouts.get(id(value))
        if layout is None:
            layout = self._layouts[id(value)] = layout_of(value)
        return layout

    def number(self, value: torch.Tensor) -> int:
        """Return a number that tensors of equal layout and equal kind have in common."""
        number = self._numbers.get(id(value))
        if number is None:
            facts = self.layout(value), self.kind(value)
            number = self._numbers[id(value)] = self._number_of.setdefault(facts, len(self._number_of))
        return number

    def kind(self, value: torch.Tensor) -> tuple[torch.device, torch.dtype | None]:
        """Return the device and the dtype of a tensor; None in place of the dtype if strides alone do not address it."""
        kind = self._kinds.get(id(value))
        if kind is None:
            dtype = value.dtype if is_dense(value, (value.dtype,)) else None
            kind = self._kinds[id(value)] = value.device, dtype
        return kind


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
