"""Ordered lists of named rules that decide for each node: save it, recompute it, or let the cut choose.

The first rule that returns a verdict decides. ``explain`` shows the reason of that rule. A partitioner is a list of
rules; to change its behaviour, change the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

import torch
from torch.fx import Node

from fxstack_interchange.format.metadata import recompute_tag
from fxstack_interchange.torch_facts.effects import may_act
from fxstack_partition.joint.joint import JointFacts
from fxstack_partition.joint.ops import OpKind, is_symbolic_value
from fxstack_partition.joint.rng_replay import can_replay_draw
from fxstack_partition.options import PartitionOptions


class Verdict(Enum):
    """The decision about a node that the backward needs. The values are texts for users."""

    KEEP = "never recomputed"
    """Only the forward runs the node. The forward saves the node's value, or a value computed from it."""
    RECOMPUTE = "must be recomputed"
    """The backward runs the node. The forward never saves its value."""
    EITHER = "saved or recomputed, whichever is cheaper"
    FREE = "available to both graphs without being saved"


@dataclass(frozen=True, slots=True)
class Rule:
    """A named reason for a verdict. ``decide`` returns None to leave the node to the next rule.

    ``decide`` is called only for nodes of ``kinds``, or for all nodes if ``kinds`` is empty. ``reason`` completes the
    sentence "the node ...".
    """

    name: str
    reason: str
    decide: Callable[[Node, JointFacts, PartitionOptions], Verdict | None]
    kinds: tuple[OpKind, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict and the rule that gave it."""

    verdict: Verdict
    rule: Rule


def rule_for_kinds(name: str, reason: str, *kinds: OpKind, verdict: Verdict) -> Rule:
    """Return a rule that gives ``verdict`` to every node of these kinds, or to every node if no kind is given."""
    return Rule(name, reason, lambda _node, _facts, _options: verdict, kinds)


def _random(node: Node, facts: JointFacts, options: PartitionOptions) -> Verdict | None:
    """Never recompute random numbers, unless the backward can draw them again from a saved state."""
    can_replay = options.redraw and can_replay_draw(node, facts.kinds[node])
    return None if can_replay else Verdict.KEEP


def tag_of(node: Node) -> str | None:
    """Return the node's recomputation tag (``must_save``, ...), or None."""
    tag = node.meta.get("recompute")
    return None if tag is None else recompute_tag(tag)


_TAGS = {
    "must_save": Verdict.KEEP,
    "prefer_save": Verdict.KEEP,
    "must_recompute": Verdict.RECOMPUTE,
    "prefer_recompute": Verdict.RECOMPUTE,
}


def effective_tag(node: Node, options: PartitionOptions) -> str | None:
    """Return the tag that ``options.policy`` gives the node, else the tag in the graph; None for a node without either.

    Raises:
        ValueError: if the tag is unknown.
    """
    choice = options.policy(node) if options.policy is not None else None
    tag = tag_of(node) if choice is None else str(getattr(choice, "name", choice)).lower()
    if tag is not None and tag not in _TAGS:
        msg = f"{node.name!r} has the recompute tag {tag!r}; known are {', '.join(_TAGS)}"
        raise ValueError(msg)
    return tag


def _tagged(node: Node, facts: JointFacts, options: PartitionOptions) -> Verdict | None:
    """Return the verdict of the node's tag. A view has none: it follows its base."""
    tag = effective_tag(node, options)
    return _TAGS.get(tag) if tag is not None and facts.kinds[node] is not OpKind.VIEW else None


def _view(_node: Node, _facts: JointFacts, options: PartitionOptions) -> Verdict | None:
    """Let the cut decide about a view; never recompute it without the option ``recompute_views``."""
    return Verdict.EITHER if options.recompute_views else Verdict.KEEP


def _reduction(_node: Node, _facts: JointFacts, options: PartitionOptions) -> Verdict | None:
    """Never recompute a reduction, unless the option ``recompute_reductions`` lets the cut decide."""
    return Verdict.EITHER if options.recompute_reductions else Verdict.KEEP


def _backward_only(node: Node, facts: JointFacts, _options: PartitionOptions) -> Verdict | None:
    """Recompute a node that the forward does not need."""
    return None if node in facts.forward else Verdict.RECOMPUTE


def _first_in_backward(node: Node, facts: JointFacts, _options: PartitionOptions) -> Verdict | None:
    """Let the cut decide about a node that the forward does not need."""
    return None if node in facts.forward else Verdict.EITHER


_UNSAVABLE_NOTE = "is not a tensor or a number, so it cannot be handed to the backward"


def _unsavable(node: Node, _facts: JointFacts, _options: PartitionOptions) -> Verdict | None:
    """Recompute a node whose value is neither a tensor nor a symbol. The rule ``unsavable`` calls this function."""
    value = node.meta.get("val")
    can_be_saved = isinstance(value, torch.Tensor | tuple | list) or is_symbolic_value(value)
    return Verdict.RECOMPUTE if "val" in node.meta and not can_be_saved else None


_STRIDE_READS = frozenset(
    {
        *(torch.ops.aten.sym_stride.int, torch.ops.aten.sym_stride.default),
        *(torch.ops.aten.sym_storage_offset.default, torch.ops.aten.sym_is_contiguous.default),
    }
)


def _layout(node: Node, facts: JointFacts, _options: PartitionOptions) -> Verdict | None:
    """Never recompute a node of the forward that reads strides."""
    return Verdict.KEEP if node.target in _STRIDE_READS and node not in facts.backward else None


_SAVABLE_KINDS = (OpKind.SYMBOLIC, OpKind.OTHER, OpKind.VIEW)

NECESSITIES: tuple[Rule, ...] = (
    rule_for_kinds("constant", "is a constant that both graphs hold", OpKind.CONSTANT, verdict=Verdict.FREE),
    rule_for_kinds("input", "is an input of the forward", OpKind.INPUT, verdict=Verdict.KEEP),
    Rule("random", "draws random numbers: a second draw would give other numbers", _random, (OpKind.RANDOM,)),
    rule_for_kinds("effect", "has a side effect", OpKind.EFFECT, verdict=Verdict.KEEP),
    rule_for_kinds(
        "data-dependent", "has a size that depends on data", OpKind.DATA_DEPENDENT, verdict=Verdict.KEEP
    ),
    rule_for_kinds(
        "collective", "communicates with other processes", OpKind.COLLECTIVE, verdict=Verdict.KEEP
    ),
    rule_for_kinds("element", "is an element of a multiple result", OpKind.GETITEM, verdict=Verdict.EITHER),
    Rule("unsavable", _UNSAVABLE_NOTE, _unsavable, _SAVABLE_KINDS),
    Rule(
        "layout",
        "reads strides: the tensor saved for the backward may be a copy with other strides",
        _layout,
        (OpKind.SYMBOLIC,),
    ),
)
"""The rules without which gradients would be wrong. Every list of rules begins with these."""

USER_TAGS: tuple[Rule, ...] = (Rule("tag", "has a recompute tag of the program", _tagged),)

_BINDING_TAGS = ("must_save", "must_recompute")


def _must(node: Node, facts: JointFacts, options: PartitionOptions) -> Verdict | None:
    """Return the verdict of a binding tag, ``must_save`` or ``must_recompute``."""
    return _tagged(node, facts, options) if effective_tag(node, options) in _BINDING_TAGS else None


def _prefer(node: Node, facts: JointFacts, options: PartitionOptions) -> Verdict | None:
    """Let the cut decide about a node with a tag. ``sac`` gives the preferred choice a lower price."""
    is_view = facts.kinds[node] is OpKind.VIEW
    return None if is_view or effective_tag(node, options) is None else Verdict.EITHER


SELECTIVE_TAGS: tuple[Rule, ...] = (
    Rule("tag", "has a recompute tag of the program", _must),
    Rule("preference", "has a recompute tag of the program that states a preference", _prefer),
)
"""Tags as in selective checkpointing: ``must_`` tags decide, ``prefer_`` tags only change the cost of the cut."""


def _custom(node: Node, facts: JointFacts, _options: PartitionOptions) -> Verdict | None:
    """Never recompute a user-defined operator of the forward, which may have an undeclared effect."""
    return Verdict.KEEP if may_act(node) and node not in facts.backward else None


_CUSTOM = Rule("custom", "is a custom operator of the program, which must run as often as in eager", _custom)
_HIGHER_ORDER = rule_for_kinds(
    "higher-order",
    "is a higher-order operator, as costly as its body",
    OpKind.HIGHER_ORDER,
    verdict=Verdict.KEEP,
)
_DRAWN = rule_for_kinds(
    "drawn", "draws random numbers, which takes longer than reading them", OpKind.RANDOM, verdict=Verdict.KEEP
)
_VIEW = Rule("view", "is a view, which costs nothing to recompute", _view, (OpKind.VIEW,))

MIN_CUT_RULES: tuple[Rule, ...] = (
    # A tag of the program cannot overrule correctness, so the necessities come first.
    *NECESSITIES,
    *USER_TAGS,
    _CUSTOM,
    Rule("backward-only", "is used by the backward alone, so nothing is repeated", _first_in_backward),
    _HIGHER_ORDER,
    # Only draws that can be replayed reach this rule.
    _DRAWN,
    rule_for_kinds("heavy", "is compute-heavy", OpKind.HEAVY, verdict=Verdict.KEEP),
    _VIEW,
    Rule(
        "reduction",
        "is a reduction: its result is small, and recomputation would read its whole input",
        _reduction,
        (OpKind.REDUCTION,),
    ),
    rule_for_kinds(
        "cheap",
        "is cheap and fuses with its users",
        *(OpKind.POINTWISE, OpKind.CREATION, OpKind.SYMBOLIC, OpKind.GATHER),
        verdict=Verdict.EITHER,
    ),
    rule_for_kinds("unknown", "is not known to be cheap", verdict=Verdict.KEEP),
)

BUDGET_RULES: tuple[Rule, ...] = (
    *NECESSITIES,
    *USER_TAGS,
    _CUSTOM,
    _HIGHER_ORDER,
    rule_for_kinds("unknown", "is not known to be cheap", OpKind.OTHER, verdict=Verdict.KEEP),
    rule_for_kinds("priced", "costs memory to save and time to recompute", verdict=Verdict.EITHER),
)
"""Rules for ``budget`` and ``ilp``: a node may be recomputed at the price of its seconds, even if it is heavy."""

SAVE_ALL_RULES: tuple[Rule, ...] = (
    *NECESSITIES,
    *USER_TAGS,
    _CUSTOM,
    _VIEW,
    rule_for_kinds("symbolic", "is arithmetic on sizes", OpKind.SYMBOLIC, verdict=Verdict.EITHER),
    Rule("backward-only", "is used by the backward alone", _backward_only),
    rule_for_kinds("save-all", "is used by the backward", verdict=Verdict.KEEP),
)


class Policy:
    """An ordered list of rules, applied to nodes. The last rule of every list must always decide."""

    def __init__(self, rules: Iterable[Rule], facts: JointFacts, options: PartitionOptions) -> None:
        ordered = tuple(rules)
        self._rules = {
            kind: [rule for rule in ordered if not rule.kinds or kind in rule.kinds] for kind in OpKind
        }
        self._facts = facts
        self._options = options

    def decide(self, node: Node) -> Decision:
        """Return the verdict of the first rule that applies to ``node``.

        Raises:
            LookupError: if no rule applies.
        """
        for rule in self._rules[self._facts.kinds[node]]:
            verdict = rule.decide(node, self._facts, self._options)
            if verdict is not None:
                return Decision(verdict, rule)
        msg = f"no rule decides about {node.name!r}; the last rule of a policy must always decide"
        raise LookupError(msg)
