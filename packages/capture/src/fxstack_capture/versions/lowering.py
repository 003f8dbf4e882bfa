"""The vocabulary of the version tables: how an instruction's argument becomes a handler's operand.

``effect`` is what an operation takes from the stack and leaves on it (``versions.opcode``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fxstack_capture.interpreter.handlers.unsupported import unsupported
from fxstack_capture.interpreter.program import Handler, Instruction, Step
from fxstack_capture.versions.opcode import Effect, Opcode


def items(argument: int) -> tuple[int, int]:
    """The effect of an operation that makes one value of as many as the argument says."""
    return argument, 1


def into(argument: int) -> tuple[int, int]:
    """The effect of an operation that puts a value into what lies deeper on the stack."""
    return argument + 1, argument


def plain(handler: Handler, effect: Effect | None = None, looks: int = 0) -> Opcode:
    """The operand is the argument itself."""
    return Opcode(lambda instruction: (handler, instruction.oparg), effect, looks=looks)


def constant(handler: Handler) -> Opcode:
    """An index into ``co_consts``."""
    return Opcode(lambda instruction: (handler, instruction.code.co_consts[instruction.oparg]))


def name(handler: Handler, effect: Effect | None = None, value_only: str = "") -> Opcode:
    """An index into ``co_names``."""

    def lower(instruction: Instruction) -> Step:
        return handler, instruction.code.co_names[instruction.oparg]

    return Opcode(lower, effect, value_only=value_only)


def name_or_method(attribute: Handler, method: Handler, takes: int) -> Opcode:
    """An index into ``co_names``, doubled; odd when a NULL is wanted beside the value."""

    def lower(instruction: Instruction) -> Step:
        handler = method if instruction.oparg & 1 else attribute
        return handler, instruction.code.co_names[instruction.oparg >> 1]

    return Opcode(lower, (takes, 1), null_bit=1)


def super_name(attribute: Handler, method: Handler) -> Opcode:
    """As ``name_or_method``, with a second bit: ``super`` was given its two arguments."""

    def lower(instruction: Instruction) -> Step:
        handler = method if instruction.oparg & 1 else attribute
        attr = instruction.code.co_names[instruction.oparg >> 2]
        return handler, (attr, bool(instruction.oparg & 2))

    return Opcode(lower, (3, 1), null_bit=1)


def two_locals(handler: Handler, effect: Effect | None = None) -> Opcode:
    """Two local slots of four bits each."""
    return Opcode(lambda instruction: (handler, (instruction.oparg >> 4, instruction.oparg & 15)), effect)


def forward(handler: Handler, effect: Effect | None = None, leaves_jumping: int = 0, skip: int = 0) -> Opcode:
    """A relative jump; ``skip`` steps of the target are passed over."""
    return Opcode(
        lambda instruction: (handler, instruction.jump(instruction.oparg, skip)), effect, leaves_jumping, skip
    )


def backward(handler: Handler, effect: Effect | None = None) -> Opcode:
    """A relative jump back."""
    return Opcode(lambda instruction: (handler, instruction.jump(-instruction.oparg)), effect)


def call_effect(argument: int) -> tuple[int, int]:
    """A call takes the callable and a NULL (or receiver) with its arguments."""
    return argument + 2, 1


def call(without_names: Handler, with_names: Handler) -> Opcode:
    """The number of arguments, and their names when KW_NAMES came before."""

    def lower(instruction: Instruction) -> Step:
        if instruction.keywords:
            return with_names, (instruction.oparg, instruction.keywords)
        return without_names, instruction.oparg

    return Opcode(lower, call_effect)


def chosen(choices: Mapping[int, Opcode], what: str, effect: Effect) -> Opcode:
    """The argument says which operation is meant."""

    def lower(instruction: Instruction) -> Step:
        choice = choices.get(instruction.oparg)
        if choice is None:
            return unsupported, f"{what} {instruction.oparg}"
        return choice.lower(instruction)

    return Opcode(lower, effect)


def selected(handler: Handler, operands: Sequence[object]) -> Opcode:
    """The argument is an index into a table that CPython has."""
    return Opcode(lambda instruction: (handler, operands[instruction.oparg]))


def fixed(handler: Handler, operand: object = None, effect: Effect | None = None) -> Opcode:
    """An operand that the table states."""
    return Opcode(lambda _instruction: (handler, operand), effect)


def refused(what: str, effect: Effect | None = None) -> Opcode:
    """A construct that ends the graph."""
    return fixed(unsupported, what, effect)
