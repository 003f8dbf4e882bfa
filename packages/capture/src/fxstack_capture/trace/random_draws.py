"""Numbers and tensors that a frame draws from a random generator, anew in each call.

Only another draw can observe when a number is drawn. Therefore the replacement code makes all draws before
the graph runs, in the order of the program. In the trace, the numbers are symbols on which no decision may
depend (``shapes.symbolic.env``). A copy of the generator gives example values for the symbols.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fxstack_capture.breaks import graph_break
from fxstack_capture.shapes.geometry import Geometry, can_be_symbolic
from fxstack_capture.sources import Drawn, Item, Source


@dataclass(frozen=True, slots=True)
class Draw:
    """A call ``function(generator, *args, **kwargs)`` that the frame makes before the graph runs.

    ``result`` is the source of the number or the tensor that the call returns.
    """

    function: Callable[..., Any]
    generator: Source
    """The source of the random generator, for example of ``random.Random``."""
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Source


def _copy_of(generator: Any) -> Any:
    """Return a generator of the same kind in the same state.

    Example values come from this copy. The real generator must not advance while tracing.
    """
    if isinstance(generator, np.random.RandomState):
        numbers = np.random.RandomState()
        numbers.set_state(generator.get_state())
        return numbers
    copy = random.Random()  # noqa: S311 - the program's generator
    copy.setstate(generator.getstate())
    return copy


class Draws:
    """The draws of one trace.

    The constructor takes two functions. ``source_of`` returns the source of a generator, or None.
    ``geometry`` returns the maker of symbols.
    """

    def __init__(
        self, source_of: Callable[[object], Source | None], geometry: Callable[[], Geometry]
    ) -> None:
        self._source_of = source_of
        self._geometry = geometry
        self.made: list[Draw] = []
        """All draws in the order of the program. The replacement code repeats them."""
        self._copies: dict[int, Any] = {}
        """Maps the id of a generator to its copy. The copy advances with the draws of the trace."""

    def draw(
        self,
        function: Callable[..., Any],
        generator: random.Random,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Return the result of a draw from ``random``: a symbolic number, a list of symbolic numbers, or
        None.

        The rules of module ``random`` call this. Raises GraphBreak if the call raises, or if its result is
        not made of numbers.
        """
        example = self.example(function, generator, args, kwargs)
        source = self._source_of(generator)
        assert source is not None
        return self.result_of(function, source, args, kwargs, example)

    def example(
        self, function: Callable[..., Any], generator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return the result of the call on a copy of the generator. Raises GraphBreak if the call raises."""
        try:
            return function(self._copy(generator), *args, **kwargs)
        except Exception as error:  # an error of the program, which plain Python reproduces
            text = f"random.{function.__name__}, which raises {type(error).__name__}"
            raise graph_break("unsupported-call", text) from error

    def result_of(
        self,
        function: Callable[..., Any],
        generator: Source,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        example: Any,
    ) -> Any:
        """Make the frame draw. ``example`` is the result of the same call on a copy of the generator.

        Return the example with symbols in place of its numbers. If the example is None, return None.
        """
        source = Drawn(len(self.made), f"random.{function.__name__}")
        result = self._symbols(example, source)
        self.add_at(function, generator, args, kwargs)
        return result

    def add(
        self, function: Callable[..., Any], generator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Source:
        """Make the frame call ``function(generator, *args, **kwargs)``. Return the source of the result.

        Called for draws of tensors, because their results need no symbols.
        """
        source = self._source_of(generator)
        assert source is not None
        return self.add_at(function, source, args, kwargs)

    def add_at(
        self, function: Callable[..., Any], generator: Source, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Source:
        """Make the frame draw from the generator at the source ``generator``. Return the source of the result."""
        source = Drawn(len(self.made), f"random.{function.__name__}")
        self.made.append(Draw(function, generator, args, kwargs, source))
        return source

    def _copy(self, generator: Any) -> Any:
        """Return the copy of a generator. The first draw makes the copy."""
        copy = self._copies.get(id(generator))
        if copy is None:
            copy = self._copies[id(generator)] = _copy_of(generator)
        return copy

    def _symbols(self, example: object, source: Source) -> Any:
        """Return symbols for the numbers in an example, which is a number, a list of numbers, or None."""
        if example is None:
            return None
        if type(example) is list:
            return [self._number(item, Item(source, i)) for i, item in enumerate(example)]
        return self._number(example, source)

    def _number(self, example: Any, source: Source) -> Any:
        """Return the symbol of one drawn number. Raises GraphBreak if the result is not a number."""
        if type(example) not in (int, float):
            text = f"{source.name}, which gives a {type(example).__qualname__},"
            raise graph_break("unsupported-call", text)
        # The example may differ from the number of this call, because no decision depends on it.
        if not can_be_symbolic(example):
            example = type(example)(1)
        return self._geometry().drawn(example, source)
