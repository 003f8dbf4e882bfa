"""The operation that ends a graph: its operands, its results on the stack, and the instructions that follow."""

from __future__ import annotations

from dataclasses import dataclass

from fxstack_capture.bytecode.assemble import Body, Op
from fxstack_capture.bytecode.build import NULL_AFTER
from fxstack_capture.bytecode.units import PREFIXES
from fxstack_capture.emit.errors import CannotResumeError
from fxstack_capture.versions.instruction_sets import instruction_set


@dataclass(frozen=True, slots=True)
class Exit:
    """One exit of an operation: how it leaves the stack, and where it goes. A branch has two exits."""

    results: tuple[bool, ...]
    """Describes the values that the operation leaves on the stack: True for a NULL, False for another value."""
    next: Op
    """The operation that runs next."""
    jump: bool = False
    """Whether the operation jumps to ``next``."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation with its prefixes.

    The operation may be rewritten to a variant that leaves no NULL on the stack.
    """

    ops: tuple[Op, ...]
    """The prefixes, then the operation."""
    takes: int
    """Number of values that the operation pops."""
    exits: tuple[Exit, ...]
    """The exits. The exit without a jump is the first."""
    passed: tuple[str, ...] = ()
    """FOR_ITER jumps past these operations at the end of a loop, by name. The stub runs them."""
    reads_below: int = 0
    """Number of values that the operation reads and leaves on the stack, below the values that it pops."""


_CALLABLE = (False, True) if NULL_AFTER else (True, False)


def step_at(body: Body, index: int) -> Step:
    """Return the whole operation at ``index`` of ``body.ops``, with its exits.

    Raises CannotResumeError if the operation cannot be run on its own.
    """
    end = index
    while body.ops[end].name in PREFIXES:
        end += 1
    group = tuple(body.ops[index : end + 1])
    op = group[-1]
    facts = instruction_set().opcodes[op.name]
    effect = facts.takes_and_leaves(op.arg)
    if effect is None:
        raise CannotResumeError(f"the operation {op.name} cannot be run on its own")
    takes, leaves = effect
    following = body.ops[end + 1] if end + 1 < len(body.ops) else op
    exit = Exit((False,) * leaves, following)
    if op.target is not None:
        first = body.ops.index(op.target)
        after = first + facts.skip
        passed = tuple(op.name for op in body.ops[first:after])
        jumping = Exit((False,) * facts.leaves_jumping, body.ops[after], jump=True)
        return Step(group, takes, (exit, jumping), passed)
    if facts.null_bit or facts.value_only:
        plain = Op(facts.value_only or op.name, op.arg & ~facts.null_bit, None, op.position, op.offset)
        leaves_null = facts.value_only or op.arg & facts.null_bit
        return Step((plain,), takes, (Exit(_CALLABLE, following) if leaves_null else exit,))
    return Step(group, takes, (exit,), reads_below=facts.reads_below)
