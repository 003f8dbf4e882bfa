"""Print the tensor-level and the loop-level IR as readable text."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.kernel import (
    Check,
    Compute,
    Constant,
    IndexValue,
    Kernel,
    Load,
    Loop,
    Reduce,
    Scan,
    Value,
)
from fxstack_inductor.ir.nodes import (
    Body,
    Call,
    Computed,
    Const,
    Coord,
    Index,
    Masked,
    Node,
    Read,
    Reduction,
    View,
)
from fxstack_inductor.ir.ordered import Scan as ScanTensor
from fxstack_inductor.ir.ordered import Scatter


def show_kernel(kernel: Kernel) -> str:
    """Return a kernel as Python-like text, with its operators and user lines in leading comments."""
    lines = [f"# {', '.join(kernel.origins)}"]
    lines += [f"# {comment}" for comment in kernel.comments]
    arguments = [f"{ref.name}: {_dtype(ref.dtype)}[{ref.numel}]" for ref in kernel.buffers]
    lines.append(f"kernel {kernel.name}({', '.join([*arguments, *kernel.sizes])}):")
    lines += [f"    for {_loop(loop)}:" for loop in kernel.outer]
    lines += [f"    over {_loop(loop)}:" for loop in kernel.inner]
    lines += [f"        v{k} = {show_value(value)}" for k, value in enumerate(kernel.values)]
    lines += [f"        {s.buffer}[{s.index}] {s.op}= v{s.value}" for s in kernel.stores]
    for part in kernel.parts:
        lines += [f"    {line}" for line in show_kernel(part).split("\n")]
    return "\n".join(lines)


def show_value(value: Value) -> str:
    """Return the right-hand side of a value: its operation and operands."""
    match value:
        case Constant(text, dtype):
            return f"{text}: {_dtype(dtype)}"
        case IndexValue(expr, dtype):
            return f"index({expr}): {_dtype(dtype)}"
        case Load(buffer, index, _, mask, other):
            where = "" if mask is None else f" if v{mask} else v{other}"
            return f"{buffer}[{index}]{where}"
        case Check(arg, size, _, mask, wraps, done):
            where = "" if mask is None else f" if v{mask}"
            kind = "wrapped" if wraps else "checked"
            return f"{'already ' if done else ''}{kind}(v{arg}, {size}){where}"
        case Compute(op, args, dtype):
            return f"{op}({', '.join(f'v{k}' for k in args)}): {_dtype(dtype)}"
        case Reduce(op, args, dtype):
            return f"reduce.{op}({', '.join(f'v{k}' for k in args)}): {_dtype(dtype)}"
        case Scan(op, args, dtype, _, combine, part):
            of_part = "" if combine is None else f"[{part}]"
            return f"scan.{op}({', '.join(f'v{k}' for k in args)}){of_part}: {_dtype(dtype)}"


def show_tensor(node: Node) -> str:
    """Return a tensor with the expression of one element, over its coordinates ``i0, i1, ...``."""
    kind = f"{node.name}: {_dtype(node.dtype)}[{', '.join(map(str, node.shape))}]"
    match node:
        case View():
            return f"{kind} = {node.base.name}[{_coords(node.coords)}]"
        case Reduction():
            ranges = zip(node.reduced, node.ranges, strict=True)
            loops = ", ".join(f"{index} in {extent}" for index, extent in ranges)
            return f"{kind} = {node.op} over {loops} of {show_body(node.body)}"
        case ScanTensor():
            return f"{kind} = running {node.op} along i{node.axis} of {show_body(node.body)}"
        case Scatter():
            ranges = zip(node.reduced, node.ranges, strict=True)
            loops = ", ".join(f"{index} in {extent}" for index, extent in ranges)
            element = f"{node.init.name}[{_coords(node.target)}]"
            return f"{kind} = for {loops}: {element} {node.op}= {show_body(node.body)}"
        case Computed():
            return f"{kind} = {show_body(node.body)}"
        case _:
            return kind


def show_body(body: Body) -> str:
    """Return the expression of an element as text, for example ``mul(x[i0], 2.0)``."""
    match body:
        case Const(value, _):
            return repr(value)
        case Index(expr, _):
            return f"index({expr})"
        case Call(op, args, _):
            return f"{op}({', '.join(map(show_body, args))})"
        case Masked(mask, inner, other):
            return f"({show_body(inner)} if {show_body(mask)} else {other.value!r})"
        case Read(node, coords):
            return f"{node.name}[{_coords(coords)}]"


def _coords(coords: Sequence[Coord]) -> str:
    """Return coordinates as text, separated by commas."""
    return ", ".join(str(c) if isinstance(c, Expr) else show_body(c.body) for c in coords)


def _loop(loop: Loop) -> str:
    """Return a loop as text, for example ``i0 in 16``."""
    return f"{loop.var.name} in {loop.extent}"


def _dtype(dtype: torch.dtype) -> str:
    """Return a dtype without ``torch.``."""
    return str(dtype).removeprefix("torch.")
