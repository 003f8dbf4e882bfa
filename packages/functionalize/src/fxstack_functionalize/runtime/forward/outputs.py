"""Convert flat graph outputs to user outputs: the last lines of the generated wrapper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from fxstack_functionalize.metadata.records import OutputInfo, OutputSource
from fxstack_functionalize.metadata.replay import AliasInfo, AliasSource
from fxstack_functionalize.runtime.backward.edge_gradients import link
from fxstack_functionalize.runtime.backward.output_edges import OutputEdges
from fxstack_functionalize.runtime.forward.parts import groups, parts_maker
from fxstack_functionalize.torch_compat import pytree
from fxstack_functionalize.trace import Shell
from fxstack_functionalize.tracer.inputs import Captured
from fxstack_functionalize.tracer.symbols import filler


def output_lines(shell: Shell, namespace: dict[str, Any], edges: OutputEdges | None = None) -> list[str]:
    """Return the statements that return the user's outputs, given ``args`` and the graph's results ``flat``.

    A plain output costs one subscript. The objects that the statements name are added to ``namespace``.
    """
    info = shell.info
    lines: list[str] = []
    aliases = _Aliases(shell, namespace)
    items = [_item(number, seen, namespace) for number, seen in enumerate(info.outputs)]
    if edges is not None:
        namespace["link"] = link
        for number, edge in enumerate(edges.all):
            namespace[f"edge_{number}"] = edge
            lines += aliases.of(*(info.outputs[origin] for origin in edge.origins))
            origins = ", ".join(items[origin] for origin in edge.origins)
            lines.append(f"link(flat[{edge.position}], edge_{number}, {origins})")
    lines += aliases.of(*info.outputs)
    result = f"({', '.join(items)}{',' if items else ''})"
    if not _is_flat_tuple(shell.out_spec):
        namespace["spec"] = shell.out_spec
        namespace["unflatten"] = pytree.tree_unflatten
        result = f"unflatten({result}, spec)"
    return [*lines, f"return {result}"]


class _Aliases:
    """The statements that make aliases. Each alias is made once, after its base."""

    def __init__(self, shell: Shell, namespace: dict[str, Any]) -> None:
        self._shell = shell
        self._namespace = namespace
        self._made: set[int] = set()
        self._groups = groups(shell.info.aliases)

    def of(self, *outputs: OutputInfo) -> Iterator[str]:
        """Yield the statements for aliases among ``outputs`` that no earlier statement made."""
        for seen in outputs:
            if seen.source is OutputSource.ALIAS:
                yield from self._make(seen.index)

    def _make(self, number: int) -> Iterator[str]:
        if number in self._made:
            return
        together = self._groups.get(number, (number,))
        self._made.update(together)
        captured, alias = self._shell.captured, self._shell.info.aliases[number]
        if alias.source is AliasSource.ALIAS:
            yield from self._make(alias.index)
            base = f"alias_{alias.index}"
        else:
            base = f"{alias.source}[{alias.index}]"
        call = "(args, flat)" if alias.numbers else "args"
        given = f"{base}, {call}" if alias.sizes else base
        members = [self._shell.info.aliases[place] for place in together]
        self._namespace[f"make_{number}"] = (
            alias_maker(captured, alias) if len(members) == 1 else parts_maker(captured, members)
        )
        names = ", ".join(f"alias_{place}" for place in together)
        yield f"{names} = make_{number}({given})"


def alias_maker(captured: Captured, alias: AliasInfo) -> Callable[..., torch.Tensor]:
    """Return the function from the base, and from arguments (and results) for symbolic sizes, to an alias."""
    arguments = [given for _, given in alias.steps]
    return alias.maker(filler(captured, arguments, alias.numbers) if alias.sizes else None)


def _item(number: int, seen: OutputInfo, namespace: dict[str, Any]) -> str:
    if seen.source is OutputSource.CONSTANT:
        namespace[f"constant_{number}"] = seen.constant
        return f"constant_{number}"
    return _ITEMS[seen.source].format(seen.index) + (".requires_grad_()" if seen.is_leaf else "")


_ITEMS = {OutputSource.VALUE: "flat[{}]", OutputSource.INPUT: "args[{}]", OutputSource.ALIAS: "alias_{}"}


def _is_flat_tuple(spec: pytree.TreeSpec) -> bool:
    return spec.type is tuple and all(child.is_leaf() for child in spec.children())
