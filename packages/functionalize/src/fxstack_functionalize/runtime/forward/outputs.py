"""Convert the flat results of a compiled graph to the outputs that the user gets.

The first call checks the number of results and their strides. If a compiler gives an output other strides
than eager's, it does so in every call. So later calls copy this output into eager's strides. If all strides
agree, later calls check nothing. Outputs that alias other tensors are views, made as eager makes them: all
results of one ``unbind`` or ``split`` come from one call, and so share one autograd node.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import torch

from fxstack_functionalize.metadata.records import OutputInfo, OutputSource
from fxstack_functionalize.metadata.replay import (
    NUMBER,
    OPERANDS,
    SPLITS,
    AliasInfo,
    AliasSource,
    apply_steps,
)
from fxstack_functionalize.runtime.backward.edge_gradients import add_edges
from fxstack_functionalize.runtime.backward.output_edges import OutputEdges
from fxstack_functionalize.runtime.calling import check_results
from fxstack_functionalize.torch_compat import functionalization as views
from fxstack_functionalize.torch_compat import pytree
from fxstack_functionalize.trace import Shell
from fxstack_functionalize.tracer.inputs import Captured
from fxstack_functionalize.tracer.symbols import is_evaluable, make_filler


class FirstCall:
    """Checks results. The wrapper calls it with arguments and results while ``pending`` is not empty."""

    def __init__(self, shell: Shell, role: str, *, check_strides: bool) -> None:
        self.pending: list[bool] = [True]
        self._role = role
        self._count = shell.info.output_count
        self._checked = False
        expected = {
            position: strides
            for position, strides in enumerate(shell.info.strides)
            if check_strides and strides is not None and is_evaluable(shell.captured, strides)
        }
        self._captured, self._expected = shell.captured, expected
        self._wanted = make_filler(shell.captured, tuple(expected.items()))

    def __call__(self, args: Sequence[Any], flat: Sequence[Any]) -> Sequence[Any]:
        result = list(check_results(flat, self._count, self._role))
        differing = {}
        for position, strides in self._wanted(args):
            if not same_layout(result[position], strides):
                differing[position] = self._expected[position]
                result[position] = with_strides(result[position], strides)
        if not self._checked:
            self._checked = True
            self._wanted = make_filler(self._captured, tuple(differing.items()))
            if not differing:
                self.pending.clear()
        return result


def same_layout(tensor: torch.Tensor | None, strides: tuple[int, ...]) -> bool:
    """Whether ``tensor`` has ``strides`` in all dimensions of a size other than 1.

    If not, ``with_strides`` copies the tensor.
    """
    if tensor is None:  # undefined result of an operator whose fake kernel promises a tensor
        return True
    tensor_strides = tensor.stride()
    # Some of torch's shape functions give a wrong number of dimensions; the operator itself is right.
    if tensor_strides == strides or tensor.numel() == 0 or len(tensor_strides) != len(strides):
        return True
    return all(size == 1 or a == b for size, a, b in zip(tensor.shape, tensor_strides, strides, strict=True))


def with_strides(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """Copy ``tensor`` into new memory with these strides."""
    fresh = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return fresh.copy_(tensor)


def group_by_call(aliases: Sequence[AliasInfo]) -> dict[int, tuple[int, ...]]:
    """Return number of an alias -> numbers of all aliases that the same operator call makes.

    Only for calls with several aliases, for example ``unbind``.
    """
    calls: list[dict[int, int]] = []
    latest: dict[Hashable, dict[int, int]] = {}
    for number_of_alias, alias in enumerate(aliases):
        if not alias.steps or alias.steps[-1][0] not in SPLITS:
            continue
        call, number = _call_of(alias), _number(alias)
        # A call returns each number once: a repeated number belongs to another call.
        if number in latest.setdefault(call, {}):
            latest[call] = {}
        if not latest[call]:
            calls.append(latest[call])
        latest[call][number] = number_of_alias
    shared_calls = [tuple(members.values()) for members in calls if len(members) > 1]
    return {number_of_alias: members for members in shared_calls for number_of_alias in members}


def _number(alias: AliasInfo) -> int:
    """Return the position of the alias among the results of its call (``unbind``)."""
    number: int = alias.steps[-1][1][NUMBER]
    return number


def _call_of(alias: AliasInfo) -> Hashable:
    """Return a key that is equal for results of one call. Symbolic sizes are compared as expressions."""
    *earlier_steps, (kind, arguments) = alias.steps
    key_of_steps = repr((earlier_steps, arguments[OPERANDS:]))
    return alias.source, alias.index, alias.detachment, kind, key_of_steps


def alias_maker(captured: Captured, *members: AliasInfo) -> Callable[..., Any]:
    """Return the function from the base to an alias, or to the tuple of all ``members`` that one call makes.

    If the steps have symbolic numbers, the function takes the arguments of the call as well. If results of
    the graph determine a number, it takes the pair of arguments and results.
    """
    first = members[0]
    kinds, arguments = zip(*first.steps, strict=True) if first.steps else ((), ())
    if len(members) == 1 and not first.sizes and not any(kind in SPLITS for kind in kinds):
        sequence = [make(given) for make, given in first.steps]
        return first.with_detachment(lambda base: views.apply_view_meta_sequence(base, sequence))

    def make_all(base: torch.Tensor, step_args: Sequence[tuple[Any, ...]]) -> tuple[torch.Tensor, ...]:
        """Return all members from one call of the split that makes them."""
        viewed = apply_steps(base, kinds[:-1], step_args[:-1])
        results = SPLITS[kinds[-1]](viewed, *step_args[-1][OPERANDS:])
        return tuple([results[_number(member)] for member in members])

    def make_one(base: torch.Tensor, step_args: Sequence[tuple[Any, ...]]) -> torch.Tensor:
        return apply_steps(base, kinds, step_args)

    replay = first.with_detachment(make_one if len(members) == 1 else make_all)
    if not first.sizes:
        return lambda base: replay(base, arguments)
    fill = make_filler(captured, arguments, first.numbers)
    return lambda base, args: replay(base, fill(args))


def output_lines(shell: Shell, namespace: dict[str, Any], edges: OutputEdges | None = None) -> list[str]:
    """Return the statements that return the user's outputs, given ``args`` and the graph's results ``flat``.

    A plain output costs one subscript. The objects that the statements name are added to ``namespace``.
    """
    info = shell.info
    lines: list[str] = []
    aliases = _Aliases(shell, namespace)
    items = [_item(number, output, namespace) for number, output in enumerate(info.outputs)]
    if edges is not None:
        namespace["link"] = add_edges
        for number, edge in enumerate(edges.all):
            namespace[f"edge_{number}"] = edge
            lines += aliases.of(*(info.outputs[origin] for origin in edge.origins))
            origins = ", ".join(items[origin] for origin in edge.origins)
            lines.append(f"link(flat[{edge.position}], edge_{number}, {origins})")
    lines += aliases.of(*info.outputs)
    result = f"({', '.join(items)}{',' if items else ''})"
    if not is_flat_tuple(shell.out_spec):
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
        self._groups = group_by_call(shell.info.aliases)

    def of(self, *outputs: OutputInfo) -> Iterator[str]:
        """Yield the statements for aliases among ``outputs`` that no earlier statement made."""
        for output in outputs:
            if output.source is OutputSource.ALIAS:
                yield from self._make(output.index)

    def _make(self, number: int) -> Iterator[str]:
        """Yield the statement that makes alias ``number``, after the statements that make its base."""
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
        arguments = f"{base}, {call}" if alias.sizes else base
        members = [self._shell.info.aliases[member] for member in together]
        self._namespace[f"make_{number}"] = alias_maker(captured, *members)
        names = ", ".join(f"alias_{member}" for member in together)
        yield f"{names} = make_{number}({arguments})"


def _item(number: int, output: OutputInfo, namespace: dict[str, Any]) -> str:
    """Return the Python expression for an output in the generated wrapper. A constant is put into ``namespace``."""
    if output.source is OutputSource.CONSTANT:
        namespace[f"constant_{number}"] = output.constant
        return f"constant_{number}"
    return _ITEMS[output.source].format(output.index) + (".requires_grad_()" if output.is_leaf else "")


_ITEMS = {OutputSource.VALUE: "flat[{}]", OutputSource.INPUT: "args[{}]", OutputSource.ALIAS: "alias_{}"}


def is_flat_tuple(spec: pytree.TreeSpec) -> bool:
    """Whether the outputs are one tuple without further nesting, so that the wrapper needs no pytree call."""
    return spec.type is tuple and all(child.is_leaf() for child in spec.children())
