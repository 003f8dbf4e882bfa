"""From an instruction's argument to a handler's operand: the vocabulary of the version tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fxstack_capture.bytecode.program import Handler, Instruction, Lowering, Step
from fxstack_capture.interpreter.handlers.unsupported import unsupported


def plain(handler: Handler) -> Lowering:
    """The operand is the argument itself."""
    return lambda instruction: (handler, instruction.oparg)


def constant(handler: Handler) -> Lowering:
    """An index into ``co_consts``."""
    return lambda instruction: (handler, instruction.code.co_consts[instruction.oparg])


def name(handler: Handler) -> Lowering:
    """An index into ``co_names``."""
    return lambda instruction: (handler, instruction.code.co_names[instruction.oparg])


def name_or_method(attribute: Handler, method: Handler) -> Lowering:
    """An index into ``co_names``, doubled; odd when a NULL is wanted beside the value."""

    def lower(instruction: Instruction) -> Step:
        handler = method if instruction.oparg & 1 else attribute
        return handler, instruction.code.co_names[instruction.oparg >> 1]

    return lower


def super_name(attribute: Handler, method: Handler) -> Lowering:
    """As ``name_or_method``, with a second bit: ``super`` was given its two arguments."""

    def lower(instruction: Instruction) -> Step:
        handler = method if instruction.oparg & 1 else attribute
        attr = instruction.code.co_names[instruction.oparg >> 2]
        return handler, (attr, bool(instruction.oparg & 2))

    return lower


def two_locals(handler: Handler) -> Lowering:
    """Two local slots of four bits each."""
    return lambda instruction: (handler, (instruction.oparg >> 4, instruction.oparg & 15))


def forward(handler: Handler, skip: int = 0) -> Lowering:
    """A relative jump; ``skip`` steps of the target are passed over."""
    return lambda instruction: (handler, instruction.jump(instruction.oparg, skip))


def backward(handler: Handler) -> Lowering:
    """A relative jump back."""
    return lambda instruction: (handler, instruction.jump(-instruction.oparg))


def call(without_names: Handler, with_names: Handler) -> Lowering:
    """The number of arguments, and their names when KW_NAMES came before."""

    def lower(instruction: Instruction) -> Step:
        if instruction.keywords:
            return with_names, (instruction.oparg, instruction.keywords)
        return without_names, instruction.oparg

    return lower


def chosen(choices: Mapping[int, Lowering], what: str) -> Lowering:
    """The argument says which operation is meant."""

    def lower(instruction: Instruction) -> Step:
        choice = choices.get(instruction.oparg)
        if choice is None:
            return unsupported, f"{what} {instruction.oparg}"
        return choice(instruction)

    return lower


def selected(handler: Handler, operands: Sequence[object]) -> Lowering:
    """The argument is an index into a table that CPython has."""
    return lambda instruction: (handler, operands[instruction.oparg])


def fixed(handler: Handler, operand: object = None) -> Lowering:
    """An operand that the table states."""
    return lambda _instruction: (handler, operand)


def refused(what: str) -> Lowering:
    """A construct that ends the graph."""
    return fixed(unsupported, what)
