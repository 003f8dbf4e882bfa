"""Layouts: read result strides from the graph, and recognise views that are strided windows of memory."""

from __future__ import annotations

import torch
from torch.fx import Node as FxNode

from fxstack_inductor.errors import VerificationError
from fxstack_inductor.ir.bounds import VarKind
from fxstack_inductor.ir.expr import ZERO, Expr, Var, recombine
from fxstack_inductor.ir.nodes import Computed, Layout, Node, View, resolve
from fxstack_inductor.ir.ordered import Scatter
from fxstack_inductor.lower.host.symbols import size_expr

# Limits: strides of dimensions of size 1 may differ from eager's in results of empty_like, in results of
# operators that are neither elementwise nor copies (Fourier transforms), and in gradients. With symbolic
# sizes, the operators of fxstack_interchange.torch_facts.layouts have the strides of torch's fake kernels.


def layout_of(value: torch.Tensor) -> Layout:
    shape = tuple(size_expr(size) for size in value.shape)
    if value.layout is not torch.strided:
        return Layout(shape, tuple(ZERO for _ in shape), value.dtype, value.device)
    strides = tuple(size_expr(stride) for stride in value.stride())
    return Layout(shape, strides, value.dtype, value.device)


def check_layout(node: FxNode, made: Node, layout: Layout) -> None:
    known = [(a.as_int(), b.as_int()) for a, b in zip(made.shape, layout.shape, strict=False)]
    wrong = len(made.shape) != len(layout.shape) or any(
        a is not None and b is not None and a != b for a, b in known
    )
    if wrong or made.dtype != layout.dtype:
        raise VerificationError(
            f"node {node.name}: the lowering of {node.target} gives {made.shape} {made.dtype}, "
            f"the graph says {layout.shape} {layout.dtype}"
        )


def set_layout(made: Node, layout: Layout) -> None:
    """Set the layout of ``made``; a view that re-adds reduced dimensions also sets its base's strides."""
    shape = tuple(known if known == 1 else size for size, known in zip(made.shape, layout.shape, strict=True))
    made.layout = Layout(shape, layout.stride, layout.dtype, layout.device)
    if isinstance(made, Scatter):
        made.init.layout = made.layout
    if isinstance(made, View) and isinstance(made.base, Computed) and made.base.origin == made.origin:
        old = made.base.layout
        strides = list(old.stride)
        for k, (coord, extent) in enumerate(zip(made.coords, old.shape, strict=True)):
            if extent == 1:
                continue
            if coord not in made.index:
                return
            strides[k] = layout.stride[made.index.index(coord)]
        made.base.layout = Layout(old.shape, tuple(strides), old.dtype, old.device)


def strided_view(view: View) -> tuple[Node, Expr] | None:
    """Return base and offset of ``view`` as a strided window of memory; None if the strides differ."""
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
