"""From flat graph outputs to what the user gets: the last lines of the generated wrapper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils import _pytree as pytree

from fxstack_functionalize.metadata import AliasSource, OutputSource
from fxstack_functionalize.symbols import evaluator

if TYPE_CHECKING:
    import torch

    from fxstack_functionalize.metadata import AliasInfo, GraphInfo, OutputInfo
    from fxstack_functionalize.runtime.linked import LinkedResults
    from fxstack_functionalize.shell import Shell


def output_lines(
    shell: Shell, namespace: dict[str, Any], linked: LinkedResults | None = None
) -> list[str]:
    """Generate the statements that return the user's outputs, given ``args`` and the graph's results ``flat``.

    A plain output costs one subscript. The objects that the statements name are added to ``namespace``.
    """
    info = shell.info
    lines = _Aliases(info, namespace)
    if any(alias.sizes for alias in info.aliases):
        namespace["bind"] = evaluator(shell.captured)
        lines.append("sizes = bind(args)")
    items = [_item(number, seen, namespace) for number, seen in enumerate(info.outputs)]
    if linked is not None:
        namespace["link"] = linked.link
        for number, link in enumerate(linked.links):
            lines.demand(*(info.outputs[tap] for tap in link.taps))
            taps = ", ".join(items[tap] for tap in link.taps)
            lines.append(f"link({number}, flat[{link.position}], {taps})")
    lines.demand(*info.outputs)
    result = f"({', '.join(items)}{',' if items else ''})"
    if not _is_flat_tuple(shell.out_spec):
        namespace["spec"] = shell.out_spec
        namespace["unflatten"] = pytree.tree_unflatten
        result = f"unflatten({result}, spec)"
    return [*lines, f"return {result}"]


class _Aliases(list[str]):
    """Statements, among them those that make aliases, each once and after those of what it is made from."""

    def __init__(self, info: GraphInfo, namespace: dict[str, Any]) -> None:
        super().__init__()
        self._aliases = info.aliases
        self._namespace = namespace
        self._made: set[int] = set()

    def demand(self, *outputs: OutputInfo) -> None:
        for seen in outputs:
            if seen.source is OutputSource.ALIAS:
                self._make(seen.index)

    def _make(self, number: int) -> None:
        if number in self._made:
            return
        self._made.add(number)
        alias = self._aliases[number]
        if alias.source is AliasSource.ALIAS:
            self._make(alias.index)
        self.append(_alias_line(number, alias, self._namespace))


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
