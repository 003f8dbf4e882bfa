"""The invariants of a stage graph, as a table of named rules.

Every package verifies the graphs at its boundary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from fxstack_interchange.format.errors import VerificationError, Violation
from fxstack_interchange.format.metadata import METADATA_KEYS, RECOMPUTE_TAGS, recompute_tag, user_line
from fxstack_interchange.format.signature import GraphSignature, InputKind, OutputKind, Stage, StageGraph
from fxstack_interchange.format.symbols import SYMBOLIC, symbols_in
from fxstack_interchange.torch_compat import HigherOrderOperator, OpOverload

ALL_STAGES = frozenset(Stage)
ATEN_STAGES = ALL_STAGES - {Stage.CAPTURED}


@dataclass(frozen=True)
class Facts:
    """The parts of a graph. They are computed once for all rules."""

    module: GraphModule
    signature: GraphSignature
    nodes: tuple[Node, ...]
    placeholders: tuple[Node, ...]
    outputs: tuple[Any, ...] | None


@dataclass(frozen=True, slots=True)
class Rule:
    """One invariant: its name in messages, its stages, and the function that finds violations."""

    name: str
    stages: frozenset[Stage]
    check: Callable[[Facts], Iterable[tuple[Node | str | None, str]]]


def verify(graph: StageGraph, rules: tuple[Rule, ...] | None = None) -> None:
    """Check the invariants of the graph's stage.

    Raises:
        VerificationError: lists every violation with node, rule and the user's source line.
    """
    broken = tuple(violations(graph, RULES if rules is None else rules))
    if broken:
        raise VerificationError(graph.signature.stage.value, broken)


def violations(graph: StageGraph, rules: tuple[Rule, ...]) -> Iterator[Violation]:
    """Yield every violation of ``rules``."""
    nodes = tuple(graph.graph_module.graph.nodes)
    placeholders = tuple(node for node in nodes if node.op == "placeholder")
    facts = Facts(graph.graph_module, graph.signature, nodes, placeholders, _outputs(nodes))
    for rule in rules:
        if graph.signature.stage in rule.stages:
            for where, message in rule.check(facts):
                line = user_line(where) if isinstance(where, Node) else None
                name = where.name if isinstance(where, Node) else where
                yield Violation(name, rule.name, message, line)


def _outputs(nodes: tuple[Node, ...]) -> tuple[Any, ...] | None:
    """Return the outputs of a graph; None if it does not end in an output node with one tuple or list."""
    if not nodes or nodes[-1].op != "output" or len(nodes[-1].args) != 1:
        return None
    values = nodes[-1].args[0]
    return tuple(values) if isinstance(values, tuple | list) else None


Violations = Iterator[tuple[Node | str | None, str]]


def _names(facts: Facts) -> Violations:
    """Check that no two nodes have the same name, because files and specifications refer to nodes by name."""
    for name, count in Counter(node.name for node in facts.nodes).items():
        if count > 1:
            yield name, f"{count} nodes have this name"


def _order(facts: Facts) -> Violations:
    """Check that each node comes after its arguments."""
    seen: set[Node] = set()
    for node in facts.nodes:
        for arg in node.all_input_nodes:
            if arg not in seen:
                yield node, f"uses {arg.name!r}, which is not defined before it"
        seen.add(node)


def _inputs(facts: Facts) -> Violations:
    """Check that input specifications and placeholders correspond, in order."""
    specs = facts.signature.inputs
    if len(specs) != len(facts.placeholders):
        yield None, f"{len(facts.placeholders)} placeholders, {len(specs)} input specifications"
    for node, spec in zip(facts.placeholders, specs, strict=False):
        if node.name != spec.name:
            yield (
                node,
                f"its specification is for {spec.name!r}; specifications and placeholders must have the same order",
            )


def _output_specs(facts: Facts) -> Violations:
    """Check that output specifications and the flat output tuple correspond, in order."""
    specs = facts.signature.outputs
    if facts.outputs is None:
        yield "output", "a graph ends in one output node that holds a flat tuple"
        return
    if len(specs) != len(facts.outputs):
        yield "output", f"{len(facts.outputs)} elements, {len(specs)} output specifications"
    for index, (value, spec) in enumerate(zip(facts.outputs, specs, strict=False)):
        if isinstance(value, tuple | list | dict):
            yield "output", f"element {index} is a container; the output is flat"
        name = value.name if isinstance(value, Node) else None
        if name != spec.name:
            yield "output", f"element {index} is {name!r}, its specification says {spec.name!r}"


_IN = InputKind
_OUT = OutputKind
_FORWARD_INPUTS = frozenset(InputKind) - {_IN.SAVED, _IN.TANGENT}
_FORWARD_OUTPUTS = frozenset(OutputKind) - {_OUT.SAVED, _OUT.GRADIENT}
_INPUT_KINDS: dict[Stage, frozenset[InputKind]] = {
    Stage.CAPTURED: _FORWARD_INPUTS,
    Stage.FUNCTIONAL: _FORWARD_INPUTS,
    Stage.JOINT: _FORWARD_INPUTS | {_IN.TANGENT},
    Stage.FORWARD: _FORWARD_INPUTS,
    Stage.BACKWARD: frozenset({_IN.SAVED, _IN.TANGENT, _IN.RNG_STATE, _IN.TOKEN}),
}
_OUTPUT_KINDS: dict[Stage, frozenset[OutputKind]] = {
    Stage.CAPTURED: _FORWARD_OUTPUTS,
    Stage.FUNCTIONAL: _FORWARD_OUTPUTS,
    Stage.JOINT: _FORWARD_OUTPUTS | {_OUT.GRADIENT},
    Stage.FORWARD: _FORWARD_OUTPUTS | {_OUT.SAVED},
    Stage.BACKWARD: frozenset({_OUT.GRADIENT, _OUT.TOKEN}),
}


_BACKWARD_INPUT_RANKS = {(_IN.TANGENT, True): 2, (_IN.TANGENT, False): 2, (_IN.RNG_STATE, True): 3}
"""Sort rank of the inputs that the backward of a joint graph receives when it runs.

The key is the kind, and whether the target is ``"backward"``.
"""


def _kinds(facts: Facts) -> Violations:
    """Check that the stage may have inputs and outputs of these kinds."""
    stage = facts.signature.stage
    for spec in facts.signature.inputs:
        if spec.kind not in _INPUT_KINDS[stage]:
            yield spec.name, f"a {stage.value} graph has no {spec.kind.value} inputs"
    for item in facts.signature.outputs:
        if item.kind not in _OUTPUT_KINDS[stage]:
            yield item.name, f"a {stage.value} graph has no {item.kind.value} outputs"


def _targets(facts: Facts) -> Violations:
    """Check that each input or output that a specification refers to exists."""
    inputs = {s.name for s in facts.signature.inputs} | {s.target for s in facts.signature.inputs}
    outputs = {s.name for s in facts.signature.outputs}
    stage = facts.signature.stage
    to_input = {_OUT.MUTATED_INPUT, _OUT.ALIAS_OF_INPUT}
    if stage is Stage.JOINT:
        to_input.add(_OUT.GRADIENT)
    for item in facts.signature.outputs:
        if item.kind in to_input and item.target not in inputs:
            yield item.name, f"a {item.kind.value} of {item.target!r}, which is not an input"
        if item.kind is _OUT.ALIAS_OF_INTERMEDIATE and item.target not in outputs:
            yield item.name, f"an alias of {item.target!r}, which is not an output"
    for spec in facts.signature.inputs:
        needs = spec.kind in (_IN.SYMBOL, _IN.SAVED)
        if needs and spec.target is None:
            yield spec.name, f"a {spec.kind.value} input without a target"
        if stage is Stage.JOINT and spec.kind is _IN.TANGENT and spec.target not in outputs:
            yield spec.name, f"the tangent of {spec.target!r}, which is not an output"


def _groups(facts: Facts) -> Violations:
    """Check the order of inputs and outputs that ``StageGraph`` prescribes."""
    inputs = facts.signature.inputs
    outputs = facts.signature.outputs
    stage = facts.signature.stage
    if stage is Stage.JOINT:
        yield from _sorted(
            [s.name for s in inputs],
            [_BACKWARD_INPUT_RANKS.get((s.kind, s.target == "backward"), 0) for s in inputs],
            "primals, tangents, random states of the backward",
        )
        ranks = [int(s.kind is _OUT.GRADIENT) for s in outputs]
        yield from _sorted([s.name for s in outputs], ranks, "outputs of the forward, gradients")
    if stage is Stage.FORWARD:
        ranks = [
            0 if s.kind is not _OUT.SAVED else 1 + int(_is_number(value))
            for s, value in zip(outputs, facts.outputs or (), strict=False)
        ]
        yield from _sorted([s.name for s in outputs], ranks, "outputs, saved tensors, saved numbers")
    if stage is Stage.BACKWARD:
        ranks = [
            _BACKWARD_INPUT_RANKS.get((s.kind, True), int(_is_number(node)))
            for s, node in zip(inputs, facts.placeholders, strict=False)
        ]
        yield from _sorted(
            [s.name for s in inputs], ranks, "saved tensors, saved numbers, tangents, random states"
        )


def _is_number(value: object) -> bool:
    tensor_or_number = value.meta.get("val") if isinstance(value, Node) else value
    return not isinstance(tensor_or_number, torch.Tensor)


def _sorted(names: list[str | None], ranks: list[Any], order: str) -> Violations:
    """Yield each name whose rank is lower than the rank before it. ``order`` describes the order in the message."""
    for name, before, after in zip(names[1:], ranks, ranks[1:], strict=False):
        if after < before:
            yield name, f"is out of order: the order must be {order}"


def _declared(facts: Facts) -> Violations:
    """Check that the signature describes each symbol once, with a range that is not empty."""
    declared = Counter(spec.name for spec in facts.signature.symbols)
    for name, count in declared.items():
        if count > 1:
            yield name, f"the symbol is described {count} times"
    for spec in facts.signature.symbols:
        if spec.upper is not None and spec.upper < spec.lower:
            yield spec.name, f"the symbol's range {spec.lower}..{spec.upper} is empty"


def _symbols(facts: Facts) -> Violations:
    """Check that an explicit input, or a node with a data-dependent result, binds every symbol."""
    bound: set[str] = set()
    tangents = {spec.name for spec in facts.signature.inputs_of(_IN.TANGENT)}
    data_dependent = {
        str(symbol) for node in facts.nodes for symbol in node.meta.get("unbacked_bindings") or ()
    }
    for spec, node in zip(facts.signature.inputs, facts.placeholders, strict=False):
        if spec.kind is _IN.SYMBOL:
            bound.add(str(spec.target))
        value = node.meta.get("val")
        if isinstance(value, SYMBOLIC) and value.node.expr.is_Symbol:
            bound.add(str(value.node.expr))
    reported: set[str] = set()
    for node in facts.nodes:
        bound.update(str(symbol) for symbol in node.meta.get("unbacked_bindings") or ())
        for symbol, _ in symbols_in(node.meta.get("val")):
            name = str(symbol)
            # The size of a tangent may be an unbacked symbol that the forward computes from data.
            if node.name in tangents and name in data_dependent:
                continue
            if name not in bound and name not in reported:
                reported.add(name)
                yield node, f"its size contains the symbol {name}, which no symbol input defines"


def _metadata(facts: Facts) -> Violations:
    """Check that metadata keys are documented and that recompute tags are known."""
    for node in facts.nodes:
        for key in node.meta:
            if key not in METADATA_KEYS:
                yield (node, f"metadata key {key!r} is not in the closed list; keep it in a side table")
        tag = node.meta.get("recompute")
        if tag is not None and recompute_tag(tag) not in RECOMPUTE_TAGS:
            yield node, f"recompute is {tag!r}, must be one of {', '.join(RECOMPUTE_TAGS)}"


def _values(facts: Facts) -> Violations:
    """Check that each node that computes a value has the value in its metadata."""
    for node in facts.nodes:
        if node.op in ("placeholder", "call_function", "call_method") and "val" not in node.meta:
            yield node, "has no value in its metadata ('val')"


def _operators(facts: Facts) -> Violations:
    """Check that each call is a call of an ATen operator or of arithmetic on sizes."""
    for node in facts.nodes:
        if node.op in ("call_method", "call_module"):
            yield node, f"{node.op} in a graph of ATen operators"
        elif node.op == "call_function" and not _is_low_level(node.target):
            yield (node, f"calls {_name_of(node.target)}, which is not an ATen operator or size arithmetic")


def _is_low_level(target: object) -> bool:
    """Whether a stage after capture may call ``target``: an operator, or a function on numbers."""
    if isinstance(target, OpOverload | HigherOrderOperator):
        return True
    module = str(getattr(target, "__module__", ""))
    # Arithmetic on sizes: for example operator.add, math.floor and torch.sym_max.
    return module in ("_operator", "operator", "math", "builtins", "torch")


def _name_of(target: object) -> str:
    return str(getattr(target, "__qualname__", target))


def _functional(facts: Facts) -> Violations:
    """Check that a graph mutates only inputs, by ``copy_``, after every other node that reads the input."""
    for index, node in enumerate(facts.nodes):
        if not isinstance(node.target, OpOverload) or not node.target._schema.is_mutable:
            continue
        destination = node.args[0] if node.args else None
        is_input = isinstance(destination, Node) and destination.op == "placeholder"
        if node.target is not torch.ops.aten.copy_.default or not is_input:
            yield node, f"{node.target} mutates; only a trailing copy_ into an input is allowed"
            continue
        later = (n for n in facts.nodes[index + 1 :] if n.op != "output")
        readers = [n.name for n in later if destination in n.all_input_nodes]
        if readers:
            yield node, f"updates {destination!s:.100}, which {readers[0]!r} reads later"


CORRESPONDENCE: tuple[Rule, ...] = (
    Rule("unique-names", ALL_STAGES, _names),
    Rule("topological-order", ALL_STAGES, _order),
    Rule("inputs", ALL_STAGES, _inputs),
    Rule("outputs", ALL_STAGES, _output_specs),
    Rule("symbol-descriptions", ALL_STAGES, _declared),
)
"""The rules that a graph must satisfy before it can be saved or loaded."""

RULES: tuple[Rule, ...] = (
    *CORRESPONDENCE,
    Rule("kinds", ALL_STAGES, _kinds),
    Rule("targets", ALL_STAGES, _targets),
    Rule("groups", ALL_STAGES, _groups),
    Rule("metadata", ALL_STAGES, _metadata),
    Rule("values", ATEN_STAGES, _values),
    Rule("symbols-bound", ALL_STAGES, _symbols),
    Rule("operators", ATEN_STAGES, _operators),
    Rule("functional", ATEN_STAGES, _functional),
)
