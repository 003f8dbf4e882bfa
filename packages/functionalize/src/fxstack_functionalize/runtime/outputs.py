"""From flat graph outputs to what the user gets: the generated epilogue of both wrappers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from fxstack_functionalize.metadata import OutputSource
from fxstack_functionalize.symbols import evaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxstack_functionalize.metadata import OutputInfo
    from fxstack_functionalize.trace import Traced

    Epilogue = Callable[[Sequence[Any], Sequence[Any]], Any]


def output_epilogue(traced: Traced) -> Epilogue:
    """Return ``make(args, flat)``: the user's outputs from the call's arguments and the flat graph outputs.

    Generated as one expression, so that a plain output costs one subscript.
    """
    namespace: dict[str, Any] = {"bind": evaluator(traced.captured), "unflatten": _unflatten}
    seen: dict[OutputInfo, str] = {}
    lines: list[str] = []
    items: list[str] = []
    for number, info in enumerate(traced.info.outputs):
        items.append(_expression(info, number, namespace, seen, lines))
    body = ", ".join(items) + ("," if items else "")
    result = f"({body})"
    if not _is_flat_tuple(traced.out_spec):
        namespace["spec"] = traced.out_spec
        result = f"unflatten({result}, spec)"
    if any("sizes" in line for line in lines):
        lines.insert(0, "sizes = bind(args)")
    source = "\n    ".join(["def epilogue(args, flat):", *lines, f"return {result}"])
    exec(compile(source, "<fxstack output epilogue>", "exec"), namespace)  # noqa: S102 - made from records only
    epilogue: Epilogue = namespace["epilogue"]
    return epilogue


def _expression(
    info: OutputInfo,
    number: int,
    namespace: dict[str, Any],
    seen: dict[OutputInfo, str],
    lines: list[str],
) -> str:
    if info.source is OutputSource.VALUE:
        return f"flat[{info.index}]"
    if info.source is OutputSource.INPUT:
        return f"args[{info.index}]"
    if info.source is OutputSource.CONSTANT:
        namespace[f"constant_{number}"] = info.constant
        return f"constant_{number}"
    base = "args" if info.source is OutputSource.VIEW_OF_INPUT else "flat"
    replay = info.replay
    assert replay is not None
    name = f"view_{number}"
    namespace[f"replay_{number}"] = replay.bind if replay.symbolic else replay.bind(_no_symbols)
    made = f"replay_{number}(sizes)" if replay.symbolic else f"replay_{number}"
    lines.append(f"{name} = {made}({base}[{info.index}])")
    return name


def _no_symbols(size: torch.SymInt) -> int:
    raise AssertionError(f"a static view chain has the symbolic size {size}")


def _is_flat_tuple(spec: pytree.TreeSpec) -> bool:
    return spec.type is tuple and all(child.is_leaf() for child in spec.children())


def _unflatten(values: Sequence[Any], spec: pytree.TreeSpec) -> Any:
    return pytree.tree_unflatten(values, spec)
