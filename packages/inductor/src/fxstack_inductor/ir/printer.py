"""Print the loop-level IR as readable text."""

from __future__ import annotations

import torch

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
    return "\n".join(lines)


def show_value(value: Value) -> str:
    match value:
        case Constant(text, dtype):
            return f"{text}: {_dtype(dtype)}"
        case IndexValue(expr, dtype):
            return f"index({expr}): {_dtype(dtype)}"
        case Load(buffer, index, _, mask, other):
            where = "" if mask is None else f" if v{mask} else v{other}"
            return f"{buffer}[{index}]{where}"
        case Check(arg, size, _, mask, wraps):
            where = "" if mask is None else f" if v{mask}"
            return f"{'wrapped' if wraps else 'checked'}(v{arg}, {size}){where}"
        case Compute(op, args, dtype):
            return f"{op}({', '.join(f'v{k}' for k in args)}): {_dtype(dtype)}"
        case Reduce(op, args, dtype):
            return f"reduce.{op}({', '.join(f'v{k}' for k in args)}): {_dtype(dtype)}"
        case Scan(op, args, dtype):
            return f"scan.{op}({', '.join(f'v{k}' for k in args)}): {_dtype(dtype)}"


def _loop(loop: Loop) -> str:
    return f"{loop.var.name} in {loop.extent}"


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
