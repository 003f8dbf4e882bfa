"""Find tensors whose elements check an index: a bad index is an error even if its element is not used.

Eager checks every index of a ``gather``. A kernel computes only elements that are read. So a tensor with
checks must not be inlined into readers that read only part of it, and is computed even if no other tensor
reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from fxstack_inductor.ir.expr import ONE, ZERO, Expr, Var, product, recombine
from fxstack_inductor.ir.expr_forms import contiguous_strides
from fxstack_inductor.ir.nodes import (
    Body,
    Computed,
    Indirect,
    Masked,
    Node,
    Pointwise,
    Read,
    Reduction,
    children,
    walk,
)
from fxstack_inductor.ir.ordered import Scatter
from fxstack_inductor.schedule.fusion.loop_matching import digits


def has_checks(node: Computed) -> bool:
    """Whether an element is computed from an index that may be out of range."""
    return any(
        isinstance(coord, Indirect) and not coord.known
        for part in node.parts
        if isinstance(part, Read)
        for coord in part.coords
    )


def read_in_part(
    live: Sequence[Computed], readers: Mapping[Node, Sequence[Computed]], required: Collection[Node]
) -> set[Computed]:
    """Return the nodes with checks that would be computed only in part if they were inlined.

    ``choose_inlined`` inlines none of them. ``required`` are nodes that must be in memory.
    """
    whole: set[Computed] = set()
    nodes: set[Computed] = set()
    for node in reversed(live):
        computed = node in required or not isinstance(node, Pointwise)
        read = (reader in whole and covers(reader, node) for reader in readers.get(node, ()))
        if computed or any(read):
            whole.add(node)
        elif has_checks(node):
            nodes.add(node)
            whole.add(node)
    return nodes


def covers(reader: Computed, node: Node) -> bool:
    """Whether computing all elements of ``reader`` reads every element of ``node``."""
    loops = [var for index in _loops(reader) if (var := index.as_var()) is not None]
    reads = _reads(reader.body, _on_coordinates)
    return any(read.node is node and _reads_every_element(read, node, loops) for read in reads)


def _loops(reader: Computed) -> tuple[Expr, ...]:
    """Return the coordinates over which a kernel of ``reader`` loops."""
    if isinstance(reader, Scatter):
        return reader.reduced
    return (*reader.index, *reader.reduced) if isinstance(reader, Reduction) else reader.index


def _reads(body: Body, sure: Callable[[Body], bool]) -> Iterator[Read]:
    """Yield the reads made at every loop point, or under a mask for which ``sure`` holds."""

    def parts(part: Body) -> Iterable[Body]:
        """Return the parts of an expression that are surely evaluated."""
        if isinstance(part, Masked) and not sure(part.mask):
            return (part.mask,)
        return children(part)

    return (part for part in walk(body, parts) if isinstance(part, Read))


def _on_coordinates(mask: Body) -> bool:
    """Whether ``mask`` reads no tensor. Such a mask excludes only positions outside a tensor."""
    return not any(isinstance(part, Read) for part in walk(mask))


def _reads_every_element(read: Read, node: Node, loops: Sequence[Var]) -> bool:
    """Whether the coordinates of ``read``, over all ``loops``, take every position of ``node``."""
    coords = [coord for coord in read.coords if isinstance(coord, Expr)]
    if len(coords) != len(read.coords):
        return False
    used = {var for coord in coords for var in coord.variables}
    if any(not (var.extent or ZERO).is_positive() for var in loops if var not in used):
        return False
    strides = contiguous_strides(node.shape)
    address = recombine(sum((c * s for c, s in zip(coords, strides, strict=True)), ZERO))
    variables = digits(address)
    if variables is not None and product([var.extent or ONE for var in variables]) == product(node.shape):
        return True
    mapped = [var for coord in coords if (var := _shifted(coord)) is not None]
    ranges = zip(coords, node.shape, strict=True)
    return len(mapped) == len(set(mapped)) and all(_spans(coord, size) for coord, size in ranges)


def _shifted(coord: Expr) -> Var | None:
    """Return the variable ``v`` if ``coord`` is ``v`` plus a constant, else None."""
    loops = [var for var in coord.variables if var.extent is not None]
    return loops[0] if len(loops) == 1 and coord.coefficient(loops[0]) == ONE else None


def _spans(coord: Expr, size: Expr) -> bool:
    """Whether ``coord``, a variable plus a constant, takes at least all values from 0 to ``size - 1``.

    It may take other values too. The coordinate 0 covers a dimension of size 1.
    """
    if size == 1 and coord == ZERO:
        return True
    var = _shifted(coord)
    if var is None or var.extent is None:
        return False
    start = coord.subs({var: ZERO})
    low = (ZERO - start).bounds()[0]
    high = (start + var.extent - size).bounds()[0]
    return low is not None and low >= 0 and high is not None and high >= 0
