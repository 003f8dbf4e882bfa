"""From flat graph outputs to what the user gets: the last lines of the generated wrapper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils import _pytree as pytree

from fxstack_functionalize.metadata import AliasSource, OutputSource
from fxstack_functionalize.symbols import evaluator

if TYPE_CHECKING:
    import torch

    from fxstack_functionalize.metadata import AliasInfo, OutputInfo
    from fxstack_functionalize.shell import Shell


def output_lines(shell: Shell, namespace: dict[str, Any]) -> list[str]:
    """Generate the statements that return the user's outputs, given ``args`` and the graph's results ``flat``.

    A plain output costs one subscript. The objects that the statements name are added to ``namespace``.
    """
    info = shell.info
    lines = [_alias_line(number, alias, namespace) for number, alias in enumerate(info.aliases)]
    if any(alias.sizes for alias in info.aliases):
        namespace["bind"] = evaluator(shell.captured)
        lines.insert(0, "sizes = bind(args)")
    items = [_item(number, seen, namespace) for number, seen in enumerate(info.outputs)]
    result = f"({', '.join(items)}{',' if items else ''})"
    if not _is_flat_tuple(shell.out_spec):
        namespace["spec"] = shell.out_spec
        namespace["unflatten"] = pytree.tree_unflatten
        result = f"unflatten({result}, spec)"
    return [*lines, f"return {result}"]


def _alias_line(number: int, alias: AliasInfo, namespace: dict[str, Any]) -> str:
    """Generate the statement that makes one alias, after those that it is made from."""
    base = (
        f"alias_{alias.index}"
        if alias.source is AliasSource.ALIAS
        else f"{alias.source}[{alias.index}]"
    )
    if alias.sizes:
        namespace[f"make_{number}"] = alias.bind
        return f"alias_{number} = make_{number}(sizes)({base})"
    namespace[f"make_{number}"] = alias.bind(_no_symbols)
    return f"alias_{number} = make_{number}({base})"


def _item(number: int, seen: OutputInfo, namespace: dict[str, Any]) -> str:
    if seen.source is OutputSource.CONSTANT:
        namespace[f"constant_{number}"] = seen.constant
        return f"constant_{number}"
    return _ITEMS[seen.source].format(seen.index)


_ITEMS = {
    OutputSource.VALUE: "flat[{}]",
    OutputSource.INPUT: "args[{}]",
    OutputSource.ALIAS: "alias_{}",
}


def _no_symbols(size: torch.SymInt) -> int:
    raise AssertionError(f"a static view chain has the symbolic size {size}")


def _is_flat_tuple(spec: pytree.TreeSpec) -> bool:
    return spec.type is tuple and all(child.is_leaf() for child in spec.children())
