"""One dimension of a shape contract: torch.export's ``Dim`` notation as frozen records.

==============================================  =======================================================
``None``, ``Dim.STATIC``                        ``None``: one graph for each size
``4``                                           ``Exactly(4)``: any other size is an error
``Dim.AUTO``, ``Dim.AUTO(min=, max=)``          ``Hint(strict=False)``: symbolic if the program allows it
``Dim.DYNAMIC``, ``Dim.DYNAMIC(min=, max=)``    ``Hint(strict=True)``: symbolic, or an error
``Dim("b", min=, max=)``, ``2 * b + 1``         ``Named``: one graph for all ``b`` in its range, or an error
==============================================  =======================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from torch.export import Dim

from fxstack_capture.torch_compat import int_oo

_HINT = type(Dim.AUTO)
"""The class of ``Dim.AUTO``, which has no public name."""
EXPECTED = "None, an int, a Dim, Dim.AUTO, Dim.STATIC, or Dim.DYNAMIC"
"""The possible entries of a specification, for messages."""


@dataclass(frozen=True, slots=True)
class Range:
    """Inclusive bounds. A bound of None is missing."""

    min: int | None = None
    max: int | None = None

    def __contains__(self, value: int) -> bool:
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)

    @property
    def text(self) -> str:
        """The bounds as arguments of ``Dim``, as text. "" without bounds. A minimum of 0 is left out."""
        low = f"min={self.min}" if self.min else ""
        high = f"max={self.max}" if self.max is not None else ""
        return ", ".join(filter(None, (low, high)))


@dataclass(frozen=True, slots=True)
class Exactly:
    """The size must be ``value``. It is the caller's error if it differs."""

    value: int


@dataclass(frozen=True, slots=True)
class Hint:
    """The size gets a symbol of its own, independent of other sizes."""

    strict: bool
    """Whether a program that needs one specific size raises an error."""
    bounds: Range
    """The range of the size. It is an error if the size is outside of it."""

    def __str__(self) -> str:
        name = "Dim.DYNAMIC" if self.strict else "Dim.AUTO"
        return f"{name}({self.bounds.text})" if self.bounds.text else name


@dataclass(frozen=True, slots=True)
class Root:
    """A named dimension. All formulas with this name must give it the same value in one call."""

    name: str
    bounds: Range

    def __str__(self) -> str:
        more = f", {self.bounds.text}" if self.bounds.text else ""
        return f"Dim({self.name!r}{more})"


@dataclass(frozen=True, slots=True)
class Named:
    """The size is ``scale * root + offset``. ``scale`` is positive."""

    root: Root
    scale: int = 1
    """The factor of the root. It is positive."""
    offset: int = 0
    """The constant term."""

    @property
    def text(self) -> str:
        """The formula as text, for example ``2*b + 1``."""
        product = self.root.name if self.scale == 1 else f"{self.scale}*{self.root.name}"
        sign = "+" if self.offset > 0 else "-"
        return f"{product} {sign} {abs(self.offset)}" if self.offset else product

    def solve(self, size: int) -> int | None:
        """Return the value of the root for which the formula equals ``size``. None if this value is not an
        integer.
        """
        value, remainder = divmod(size - self.offset, self.scale)
        return None if remainder else value

    @property
    def lowest(self) -> int:
        """The smallest value of the root for which the size is neither 0 nor 1.

        Sizes 0 and 1 are never symbolic.
        """
        return -((self.offset - 2) // self.scale)


DimRule: TypeAlias = Exactly | Hint | Named | None
"""The rule of one dimension. None means that the size stays constant."""


def dim_rule(dim: object, position: str) -> DimRule:
    """Return the record of ``dim``, one entry of a ``dynamic_shapes`` specification.

    Raises:
        TypeError: ``dim`` is none of the entries in the table above. ``position`` (`` at x[0]``) is its place
            in the message.
    """
    if dim is None:
        return None
    if type(dim) is int:
        return Exactly(dim)
    if isinstance(dim, _HINT):
        return _hint_rule(dim)
    if isinstance(dim, Dim):
        return _named_rule(dim)
    raise TypeError(f"dynamic_shapes{position}: expected {EXPECTED}, but got {dim!r}")


def _hint_rule(dim: Any) -> Hint | None:
    """Return the rule of ``Dim.AUTO``, ``Dim.DYNAMIC`` or ``Dim.STATIC``. None for ``Dim.STATIC``."""
    kind = dim.type.name
    return None if kind == "STATIC" else Hint(kind == "DYNAMIC", Range(dim.min, dim.max))


def _named_rule(dim: Any) -> Named:
    """Return the rule of a ``Dim``, or of a linear formula of a ``Dim``. Torch represents the formula as a
    function.
    """
    if not hasattr(dim, "fn"):
        return Named(_root(dim))
    start = int(dim.fn(0))
    return Named(_root(dim.root), int(dim.fn(1)) - start, start)


def _root(dim: Any) -> Root:
    """Return the name and the range of a ``Dim``."""
    return Root(dim.__name__, Range(int(dim.min), None if dim.max is int_oo else int(dim.max)))
