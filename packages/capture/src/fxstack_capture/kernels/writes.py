"""Find the parameters that a Triton kernel writes to, from the kernel's intermediate code (TTIR).

The analysis begins at the address of every store, atomic and descriptor store. It follows the address
backwards to parameters, through pointer arithmetic, branches, loops and calls. The analysis is conservative:
if an address is loaded from memory, or an operation is unknown, every possible parameter counts as written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

LOADED = 0
"""Stands for every value that was loaded from memory."""
WRITES = frozenset(
    {
        "tt.store",
        "tt.atomic_rmw",
        "tt.atomic_cas",
        "tt.descriptor_store",
        "tt.descriptor_reduce",
        "tt.descriptor_scatter",
        "tt.experimental_descriptor_store",
        "tt.experimental_descriptor_scatter",
    }
)
"""Operations that write to their first operand."""
LOADS = frozenset(
    {
        "tt.load",
        "tt.descriptor_load",
        "tt.descriptor_gather",
        "tt.experimental_descriptor_load",
        "tt.experimental_descriptor_gather",
    }
)
"""Operations that read from memory. A loaded value may be an address of any memory."""
FIRST = frozenset({"tt.addptr", "tt.advance", "tt.make_tensor_ptr", "tt.make_tensor_descriptor", "tt.gather"})
"""Operations whose result points to the memory of the first operand.

All other operands are offsets and sizes.
"""
DIALECTS = ("arith.", "math.", "ub.", "cf.", "scf.", "builtin.")
"""Dialects whose operations do not access memory."""
PLAIN = frozenset(
    f"tt.{name}"
    for name in (
        *("func", "return", "call", "get_program_id", "get_num_programs", "make_range"),
        *("splat", "unsplat", "broadcast", "expand_dims", "reshape", "trans", "join", "split"),
        *("cat", "bitcast", "ptr_to_int", "int_to_ptr", "fp_to_fp", "clampf", "precise_sqrt"),
        *("precise_divf", "mulhiui", "dot", "dot_scaled", "reduce", "reduce.return", "scan"),
        *("scan.return", "map_elementwise", "map_elementwise.return", "histogram", "print"),
        *("assert", "poison"),
    )
)
"""Triton operations that do not write to memory."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. Values and blocks are identified by integers."""

    name: str
    """The name in TTIR, such as ``tt.store``."""
    operands: tuple[int, ...]
    """The ids of the values that the operation gets."""
    results: tuple[int, ...]
    """The ids of the values that the operation returns."""
    regions: tuple[int, ...]
    """The regions inside of the operation: loop bodies, branches, the body of a function."""
    region: int | None
    """The region that contains the operation, or None for the module."""
    symbol: str | None
    """The name of a function (``tt.func``), or of the called function (``tt.call``)."""
    pure: bool
    """For an external operation: whether it has no side effects. For ``tt.func``: whether it is an entry
    point.
    """


@dataclass
class Code:
    """A module: its operations (innermost first), and the block arguments of each region (in order)."""

    operations: list[Operation] = field(default_factory=list)
    """The operations, inner operations before outer operations."""
    blocks: dict[int, dict[int, tuple[int, ...]]] = field(default_factory=lambda: defaultdict(dict))
    """Maps a region and a block to the arguments of the block."""

    def entry(self, region: int) -> tuple[int, ...]:
        """Return the arguments of the first block of ``region``."""
        return next(iter(self.blocks[region].values()), ())

    def ends(self, region: int, name: str) -> list[tuple[int, ...]]:
        """Return the operands of each operation called ``name`` that is directly in ``region``."""
        return [op.operands for op in self.operations if op.region == region and op.name == name]


def written(module: object, count: int) -> frozenset[int] | None:
    """Return which arguments of the entry function the kernel writes to, as positions.

    Return None if the kernel writes to unknown memory, or if the function does not have ``count`` arguments.
    """
    code = read_operations(module)
    flow = _Flow(code)
    for operation in code.operations:
        flow.add(operation)
    entry = next(op for op in reversed(code.operations) if op.name == "tt.func" and op.pure)
    reached = flow.find_reached_values()
    arguments = code.entry(entry.regions[0])
    if LOADED in reached or len(arguments) != count:
        return None
    return frozenset(k for k, value in enumerate(arguments) if value in reached)


def read_operations(module: Any) -> Code:
    """Return the records of all operations of a Triton module. Inner operations come first, as in
    ``module.walk``.
    """
    code = Code()

    def visit(op: Any) -> None:
        """Add the record of an operation, and the arguments of its block."""
        block = op.get_block()
        region = None
        if block is not None and block.get_parent() is not None:
            region = block.get_parent().id()
            if block.id() not in code.blocks[region]:
                count = block.get_num_arguments()
                code.blocks[region][block.id()] = tuple(block.get_argument(k).id() for k in range(count))
        code.operations.append(_operation(op, region))

    module.walk(visit)
    return code


def _operation(op: Any, region: int | None) -> Operation:
    """Return the record of an operation of Triton's module. ``region`` is the id of the region that contains
    it, or None.
    """
    name = op.get_name()
    symbol, pure = None, False
    if name == "tt.call":
        symbol = op.get_flat_symbol_ref_attr("callee")
    elif name == "tt.func":
        symbol = op.get_str_attr("sym_name")
        pure = op.get_str_attr("sym_visibility") != "private"
    elif name in {"tt.elementwise_inline_asm", "tt.extern_elementwise"}:
        pure = bool(op.get_bool_attr("pure"))
    return Operation(
        name,
        tuple(op.get_operand(k).id() for k in range(op.get_num_operands())),
        tuple(op.get_result(k).id() for k in range(op.get_num_results())),
        tuple(op.get_region(k).id() for k in range(op.get_num_regions())),
        region,
        symbol,
        pure,
    )


class _Flow:
    """The data flow of a module. Call ``add`` for each operation, then ``find_reached_values``."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self.sources: dict[int, set[int]] = defaultdict(set)
        """Maps a value to the values from which it may be computed."""
        self.targets: set[int] = set()
        """The addresses of writes."""
        self.functions = {op.symbol: op for op in code.operations if op.name == "tt.func"}
        """The functions of the module by name."""

    def find_reached_values(self) -> set[int]:
        """Return all values that the addresses of writes depend on. Called after all operations have been
        added.
        """
        reached_values: set[int] = set()
        stack = list(self.targets)
        while stack:
            value = stack.pop()
            if value not in reached_values:
                reached_values.add(value)
                stack.extend(self.sources[value])
        return reached_values

    def link(self, values: Iterable[int], sources: Iterable[int]) -> None:
        """Record that each value may equal the source at the same position."""
        for value, source in zip(values, sources, strict=True):
            self.sources[value].add(source)

    def mix(self, values: Iterable[int], sources: Sequence[int]) -> None:
        """Record that each value may be computed from any of ``sources``."""
        for value in values:
            self.sources[value].update(sources)

    def add(self, op: Operation) -> None:
        """Record the sources of an operation's results, and the addresses that the operation writes to."""
        rule = _RULES.get(op.name)
        if rule is not None:
            rule(self, op)
        elif op.name in WRITES:
            self.targets.update(op.operands[:1])
            self.mix(op.results, (LOADED,))
        elif op.name in LOADS:
            self.mix(op.results, (LOADED,))
        elif op.name in FIRST:
            self.mix(op.results, op.operands[:1])
        else:
            self._other(op)

    def _other(self, op: Operation) -> None:
        """Record an operation without a rule.

        Its results, and the arguments of its regions, depend on all operands.
        """
        is_plain = op.pure or op.name in PLAIN or op.name.startswith(DIALECTS)
        # An unknown operation may write through each pointer that it gets.
        if not is_plain:
            self.targets.update(op.operands)
        self.mix(op.results, op.operands)
        for region in op.regions:
            for arguments in self.code.blocks[region].values():
                self.mix(arguments, op.operands)
            for inner in self.code.operations:
                if inner.region == region and not inner.results:
                    self.mix(op.results, inner.operands)


def _for(flow: _Flow, op: Operation) -> None:
    """Link the values that a loop carries to their initial values, and to the values that the body yields."""
    # The first argument of the region is the counter. The first operands are the bounds and the step of the
    # loop.
    carried = flow.code.entry(op.regions[0])[1:]
    initial = op.operands[3:]
    for yielded in (initial, *flow.code.ends(op.regions[0], "scf.yield")):
        flow.link(carried, yielded)
        flow.link(op.results, yielded)


def _while(flow: _Flow, op: Operation) -> None:
    """Link the values that pass between the condition and the body of a loop."""
    before, after = op.regions
    for yielded in (op.operands, *flow.code.ends(after, "scf.yield")):
        flow.link(flow.code.entry(before), yielded)
    for operands in flow.code.ends(before, "scf.condition"):
        flow.link(flow.code.entry(after), operands[1:])
        flow.link(op.results, operands[1:])


def _if(flow: _Flow, op: Operation) -> None:
    """Link the results to the values that both branches yield."""
    for region in op.regions:
        for yielded in flow.code.ends(region, "scf.yield"):
            flow.link(op.results, yielded)


def _branch(flow: _Flow, op: Operation) -> None:
    """Link a branch to the arguments of all blocks in the region."""
    # TTIR does not name the target block of the branch here, so the operands may be arguments of any block.
    if op.region is not None:
        blocks = list(flow.code.blocks[op.region].values())[1:]
        for block in blocks:
            flow.mix(block, op.operands)


def _call(flow: _Flow, op: Operation) -> None:
    """Link the arguments and results of a call. A function outside of the module may write to each argument."""
    callee = flow.functions.get(op.symbol)
    if callee is None:
        flow.targets.update(op.operands)
        flow.mix(op.results, (LOADED,))
        return
    flow.link(flow.code.entry(callee.regions[0]), op.operands)
    for returned in flow.code.ends(callee.regions[0], "tt.return"):
        flow.link(op.results, returned)


def _select(flow: _Flow, op: Operation) -> None:
    """Link the result to both alternatives. The condition contributes no address."""
    flow.mix(op.results, op.operands[1:])


_RULES = MappingProxyType(
    {
        "scf.for": _for,
        "scf.while": _while,
        "scf.if": _if,
        "cf.br": _branch,
        "cf.cond_br": _branch,
        "tt.call": _call,
        "arith.select": _select,
    }
)
"""Maps an operation to the function that adds it, if the operation has regions or operands with different
roles.
"""
