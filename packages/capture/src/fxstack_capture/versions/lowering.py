"""The rows of the version tables: how an instruction becomes a step, and its effect on the stack.

Each function below makes rows of one kind. The kind says how the instruction's argument becomes the handler's
operand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType

from fxstack_capture.interpreter.handlers.flow import unsupported
from fxstack_capture.interpreter.program import Handler, Step

Effect = tuple[int, int] | Callable[[int], tuple[int, int]]
"""The stack effect of an operation: a pair (values popped, values pushed), or a function from the argument to
this pair.
"""


@dataclass(slots=True)
class Instruction:
    """One instruction of a code object with its prefixes."""

    code: CodeType
    indices: Mapping[int, int]
    """Maps a bytecode offset to the index of its step."""
    opname: str
    """The name without specialisation, for example ``LOAD_FAST``."""
    oparg: int
    """The argument, with its EXTENDED_ARG prefixes."""
    start: int
    """The offset of the first EXTENDED_ARG. Jumps to the instruction lead to this offset."""
    offset: int
    """The offset of the opcode."""
    following: int
    """The offset after the inline cache. Jumps are relative to this offset."""
    keywords: tuple[str, ...] = ()
    """The names of the last arguments of a call. A KW_NAMES before the call gives them."""
    delegating: bool = False
    """Whether the instruction is the yield of a ``yield from``."""

    def jump(self, distance: int, skip: int = 0) -> int:
        """Return the index of a step: the step ``distance`` code units after ``following``, plus ``skip``
        steps.
        """
        return self.indices[self.following + 2 * distance] + skip


@dataclass(frozen=True, slots=True)
class Opcode:
    """One row of a version's table: how an opcode becomes a step, and its effect on the stack."""

    lower: Callable[[Instruction], Step]
    """Makes the step of an instruction with this opcode. A step is a handler with its operand."""
    effect: Effect | None = None
    """The stack effect of the operation if it does not jump. None for an operation that cannot end a graph."""
    leaves_jumping: int = 0
    """Number of values that the operation pushes in place of the popped values if it jumps."""
    skip: int = 0
    """Number of operations at its target that a jump skips."""
    reads_below: int = 0
    """Number of values that the operation reads without popping, below the values that it pops."""
    null_bit: int = 0
    """The bit of the argument that requests a NULL (or receiver) next to the value."""
    value_only: str = ""
    """For an opcode that always leaves a value and a NULL (or receiver): the opcode that leaves only the
    value (3.11).
    """

    def takes_and_leaves(self, argument: int) -> tuple[int, int] | None:
        """Return how many values the instruction pops and pushes, or None if it cannot end a graph.

        The replacement code around a graph break needs the numbers (``emit.endings.steps``).
        """
        return self.effect(argument) if callable(self.effect) else self.effect


def items(argument: int) -> tuple[int, int]:
    """Return the effect of an operation that makes one value from ``argument`` values, such as BUILD_LIST."""
    return argument, 1


def into(argument: int) -> tuple[int, int]:
    """Return the effect of an operation that adds the top value to a container, such as SET_ADD.

    The container is ``argument`` values below the top.
    """
    return argument + 1, argument


def plain(handler: Handler, effect: Effect | None = None, reads_below: int = 0) -> Opcode:
    """Make a row whose operand is the unchanged argument of the instruction."""
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
    """Make a row for an argument that is twice an index into ``co_names``.

    The lowest bit of the argument requests a NULL next to the value.
    """

    def lower(instruction: Instruction) -> Step:
        """Return the step of the handler that the lowest bit selects."""
        handler = method if instruction.oparg & 1 else attribute
        return handler, instruction.code.co_names[instruction.oparg >> 1]

    return Opcode(lower, (takes, 1), null_bit=1)


def super_name(attribute: Handler, method: Handler) -> Opcode:
    """Make a row like ``name_or_method`` with a second bit: whether the program passes two arguments to
    ``super``.
    """

    def lower(instruction: Instruction) -> Step:
        """Return the step of the handler that the lowest bit selects, with the name and the second bit."""
        handler = method if instruction.oparg & 1 else attribute
        attr = instruction.code.co_names[instruction.oparg >> 2]
        return handler, (attr, bool(instruction.oparg & 2))

    return Opcode(lower, (3, 1), null_bit=1)


def two_locals(handler: Handler, effect: Effect | None = None) -> Opcode:
    """Make a row for an argument that contains two local slots of four bits each."""
    return Opcode(lambda instruction: (handler, (instruction.oparg >> 4, instruction.oparg & 15)), effect)


def forward(handler: Handler, effect: Effect | None = None, leaves_jumping: int = 0, skip: int = 0) -> Opcode:
    """Make the row of a relative jump forward. The jump skips ``skip`` steps at its target."""
    return Opcode(
        lambda instruction: (handler, instruction.jump(instruction.oparg, skip)), effect, leaves_jumping, skip
    )


def backward(handler: Handler, effect: Effect | None = None) -> Opcode:
    """Make the row of a relative jump backward."""
    return Opcode(lambda instruction: (handler, instruction.jump(-instruction.oparg)), effect)


def call_effect(argument: int) -> tuple[int, int]:
    """Return the effect of a call. It pops the callable, a NULL (or receiver) and the arguments."""
    return argument + 2, 1


def call(without_names: Handler, with_names: Handler) -> Opcode:
    """Make the row of a call. With a KW_NAMES before the call, the operand contains the names of arguments."""

    def lower(instruction: Instruction) -> Step:
        """Return the step with the handler for calls with or without names."""
        if instruction.keywords:
            return with_names, (instruction.oparg, instruction.keywords)
        return without_names, instruction.oparg

    return Opcode(lower, call_effect)


def chosen(choices: Mapping[int, Opcode], noun: str, effect: Effect) -> Opcode:
    """Make a row whose argument selects one of the rows ``choices``. Any other argument breaks the graph.

    ``noun`` is the word for the argument in the text of the graph break, for example ``binary operator``.
    """

    def lower(instruction: Instruction) -> Step:
        """Return the step of the selected row, or a step that breaks the graph."""
        choice = choices.get(instruction.oparg)
        if choice is None:
            return unsupported, f"{noun} {instruction.oparg}"
        return choice.lower(instruction)

    return Opcode(lower, effect)


def selected(handler: Handler, operands: Sequence[object]) -> Opcode:
    """Make a row whose argument is an index into ``operands``, a table from CPython."""
    return Opcode(lambda instruction: (handler, operands[instruction.oparg]))


def fixed(handler: Handler, operand: object = None, effect: Effect | None = None) -> Opcode:
    """Make a row whose handler always gets ``operand``. The argument of the instruction is ignored."""
    return Opcode(lambda _instruction: (handler, operand), effect)


def refused(construct: str, effect: Effect | None = None) -> Opcode:
    """Make the row of a construct that breaks the graph. ``construct`` is its name in messages, for example
    ``await``.
    """
    return fixed(unsupported, construct, effect)
