"""The rows of the version tables: how an instruction becomes a step, and its effect on the stack.

Each function below makes a row of one kind: it says how the instruction's argument becomes the handler's operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType

from fxstack_capture.interpreter.handlers.flow import unsupported
from fxstack_capture.interpreter.program import Handler, Step

Effect = tuple[int, int] | Callable[[int], tuple[int, int]]
"""Numbers of values that an operation pops and pushes, or a function of the argument that returns both."""


@dataclass(slots=True)
class Instruction:
    """One instruction of a code object with its prefixes."""

    code: CodeType
    indices: Mapping[int, int]
    """The index of the step at each offset."""
    opname: str
    """The name without specialisation, for example ``LOAD_FAST``."""
    oparg: int
    """The argument, with its EXTENDED_ARG prefixes."""
    start: int
    """The offset of the first EXTENDED_ARG, where jumps to the instruction lead."""
    offset: int
    """The offset of the opcode."""
    following: int
    """The offset behind the inline cache. Jumps are relative to it."""
    keywords: tuple[str, ...] = ()
    """The names that a KW_NAMES before the call gives to its last arguments."""
    delegating: bool = False
    """Whether the instruction is the yield of a ``yield from``."""

    def jump(self, distance: int, skip: int = 0) -> int:
        """Return the index of the step ``distance`` code units after ``following``, plus ``skip`` steps."""
        return self.indices[self.following + 2 * distance] + skip


@dataclass(frozen=True, slots=True)
class Opcode:
    """One row of a version's table: how an opcode becomes a step, and its effect on the stack."""

    lower: Callable[[Instruction], Step]
    """Makes the step, a handler and its operand, of an instruction with this opcode."""
    effect: Effect | None = None
    """What the operation pops and pushes if it does not jump; None for an operation that cannot end a graph."""
    leaves_jumping: int = 0
    """Number of values that a jump leaves in place of the values that it pops, if it jumps."""
    skip: int = 0
    """Number of operations at the target that a jump passes over."""
    reads_below: int = 0
    """Number of values that the operation reads below the values that it pops."""
    null_bit: int = 0
    """The bit of the argument that asks for a NULL (or receiver) beside the value."""
    value_only: str = ""
    """The opcode that leaves the same value without a NULL (or receiver), if this opcode always leaves both (3.11)."""

    def takes_and_leaves(self, argument: int) -> tuple[int, int] | None:
        """Return the numbers of values that the instruction pops and pushes, or None if it cannot end a graph.

        The replacement code around a graph break needs them (``emit.endings.steps``).
        """
        return self.effect(argument) if callable(self.effect) else self.effect


def items(argument: int) -> tuple[int, int]:
    """Return the effect of an operation that makes one value of ``argument`` values, such as BUILD_LIST."""
    return argument, 1


def into(argument: int) -> tuple[int, int]:
    """Return the effect of an operation that adds the top to a container ``argument`` values below, such as SET_ADD."""
    return argument + 1, argument


def plain(handler: Handler, effect: Effect | None = None, reads_below: int = 0) -> Opcode:
    """Make a row whose operand is the argument of the instruction itself."""
    return Opcode(lambda instruction: (handler, instruction.oparg), effect, reads_below=reads_below)


def constant(handler: Handler) -> Opcode:
    """Make a row whose argument is an index into ``co_consts``."""
    return Opcode(lambda instruction: (handler, instruction.code.co_consts[instruction.oparg]))


def name(handler: Handler, effect: Effect | None = None, value_only: str = "") -> Opcode:
    """Make a row whose argument is an index into ``co_names``."""

    def lower(instruction: Instruction) -> Step:
        return handler, instruction.code.co_names[instruction.oparg]

    return Opcode(lower, effect, value_only=value_only)


def name_or_method(attribute: Handler, method: Handler, takes: int) -> Opcode:
    """Make a row whose argument is twice an index into ``co_names``, plus 1 if a NULL lies beside the value."""

    def lower(instruction: Instruction) -> Step:
        """Return the step of the handler that the lowest bit selects."""
        handler = method if instruction.oparg & 1 else attribute
        return handler, instruction.code.co_names[instruction.oparg >> 1]

    return Opcode(lower, (takes, 1), null_bit=1)


def super_name(attribute: Handler, method: Handler) -> Opcode:
    """Make a row like ``name_or_method``, with a second bit: the program passes two arguments to ``super``."""

    def lower(instruction: Instruction) -> Step:
        """Return the step of the handler that the lowest bit selects, with the name and the second bit."""
        handler = method if instruction.oparg & 1 else attribute
        attr = instruction.code.co_names[instruction.oparg >> 2]
        return handler, (attr, bool(instruction.oparg & 2))

    return Opcode(lower, (3, 1), null_bit=1)


def two_locals(handler: Handler, effect: Effect | None = None) -> Opcode:
    """Make a row whose argument is two local slots of four bits each."""
    return Opcode(lambda instruction: (handler, (instruction.oparg >> 4, instruction.oparg & 15)), effect)


def forward(handler: Handler, effect: Effect | None = None, leaves_jumping: int = 0, skip: int = 0) -> Opcode:
    """Make the row of a relative jump forward, which passes over ``skip`` steps at its target."""
    return Opcode(
        lambda instruction: (handler, instruction.jump(instruction.oparg, skip)), effect, leaves_jumping, skip
    )


def backward(handler: Handler, effect: Effect | None = None) -> Opcode:
    """Make the row of a relative jump backward."""
    return Opcode(lambda instruction: (handler, instruction.jump(-instruction.oparg)), effect)


def call_effect(argument: int) -> tuple[int, int]:
    """Return the effect of a call, which takes the callable and a NULL (or receiver) with its arguments."""
    return argument + 2, 1


def call(without_names: Handler, with_names: Handler) -> Opcode:
    """Make the row of a call. Its operand has the names of arguments if a KW_NAMES comes before the call."""

    def lower(instruction: Instruction) -> Step:
        """Return the step of the handler that the presence of names selects."""
        if instruction.keywords:
            return with_names, (instruction.oparg, instruction.keywords)
        return without_names, instruction.oparg

    return Opcode(lower, call_effect)


def chosen(choices: Mapping[int, Opcode], noun: str, effect: Effect) -> Opcode:
    """Make a row whose argument selects one of the rows ``choices``. Any other argument breaks the graph.

    ``noun``: what the text of the graph break calls the argument, for example ``binary operator``.
    """

    def lower(instruction: Instruction) -> Step:
        """Return the step of the selected row, or a step that breaks the graph."""
        choice = choices.get(instruction.oparg)
        if choice is None:
            return unsupported, f"{noun} {instruction.oparg}"
        return choice.lower(instruction)

    return Opcode(lower, effect)


def selected(handler: Handler, operands: Sequence[object]) -> Opcode:
    """Make a row whose argument is an index into ``operands``, a table of CPython."""
    return Opcode(lambda instruction: (handler, operands[instruction.oparg]))


def fixed(handler: Handler, operand: object = None, effect: Effect | None = None) -> Opcode:
    """Make a row whose handler always gets ``operand``, whatever the argument."""
    return Opcode(lambda _instruction: (handler, operand), effect)


def refused(construct: str, effect: Effect | None = None) -> Opcode:
    """Make the row of a construct that breaks the graph. ``construct``: its name in the text, for example ``await``."""
    return fixed(unsupported, construct, effect)
