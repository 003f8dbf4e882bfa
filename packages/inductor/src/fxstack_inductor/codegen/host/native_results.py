"""Rare cases that native host programs leave to Python: unplanned operator results, copied tensors.

Each case has a place of its own, which is usually empty. The interpreter's lock is taken only to clear a
filled place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fxstack_inductor.codegen.dtype_codes import DTYPE_CODES
from fxstack_inductor.codegen.host.native_text import c_sizes
from fxstack_inductor.codegen.host.python_host import HostWriter, identifier, shape_text
from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import Extern, Layout
from fxstack_inductor.schedule.plan import Step

UNKNOWN_DTYPE = -1


@dataclass
class RareCases:
    """The methods of a native writer for rare cases; the abstract methods are the writer's."""

    python: HostWriter = field(init=False)
    """Writes the lines of the steps that call back, and decides about memory."""
    handles: dict[str, str] = field(init=False, default_factory=dict)
    """Variables that hold tensor handles, by names in the Python program."""
    owned: dict[str, list[str]] = field(init=False, default_factory=dict)
    """The places in ``o`` and ``t`` that keep a tensor, and its views, alive."""
    rare: set[str] = field(init=False, default_factory=set)
    """Places that are usually empty, and are then released without the interpreter's lock."""

    undefined: str = field(init=False, default="")

    def line(self, text: str) -> None:
        raise NotImplementedError

    def check(self, failed: str) -> None:
        raise NotImplementedError

    def _new(self, kind: str) -> str:
        raise NotImplementedError

    def _own(self, name: str, place: str) -> None:
        raise NotImplementedError

    def _state(self, name: str) -> int:
        raise NotImplementedError

    def _callback(self, text: str) -> str:
        raise NotImplementedError

    def _undefined(self) -> str:
        """Return the handle of an undefined tensor."""
        if not self.undefined:
            self.undefined = self._new("t")
            self.check(f"fx.aoti_torch_new_uninitialized_tensor(&{self.undefined})")
        return self.undefined

    def _rare(self, name: str) -> str:
        place = self._new("o")
        self.rare.add(place)
        self._own(name, place)
        return place

    def _release(self, names: Iterable[str]) -> None:
        """Clear the rare places of tensors that nothing reads any more."""
        for name in names:
            kept = self.owned.get(name, [])
            for place in [place for place in kept if place in self.rare]:
                self.line(f"if ({place}) fx_release(&thread, &{place});")
                kept.remove(place)

    def _by_python(self, text: str, name: str, symbols: Sequence[str], place: str) -> str:
        """Return the call of Python function ``text`` on tensor ``name`` (if any) and ``symbols``."""
        handle = self.handles[identifier(name)] if name else "0"
        function = f"fx.PyTuple_GetItem(self, {self._state(self._callback(text))})"
        numbers = f"(int64_t[]){{{', '.join(symbols) or '0'}}}, {len(symbols)}"
        return f"fx_by_python(&thread, {function}, {handle}, {numbers}, &{place})"

    def _check_results(self, step: Step) -> None:
        """Copy results of ``step`` that differ from the plan, or end the program."""
        for output, layout in self.python.results_of(step):
            self._check_result(output, layout)

    def _check_result(self, output: Extern, layout: Layout | None) -> None:
        own = identifier(output.name)
        shape = () if layout is None else layout.shape
        stride = () if layout is None else layout.stride
        dims = -1 if layout is None else len(shape)
        symbols = symbols_of((*shape, *stride))
        dtype, known = (self.python.constant(output.dtype), None if layout is None else shape_text(shape))
        text = (
            f"def {{name}}({', '.join(['x', *symbols])}):\n"
            f"    return (as_planned(x, {dtype}, {known}, {shape_text(stride)}),)\n"
        )
        code = DTYPE_CODES.get(output.dtype, UNKNOWN_DTYPE)
        place, handle = self._rare(own), self.handles[own]
        self.line(f"if (fx_otherwise({handle}, {code}, {dims}, {c_sizes(shape)}, {c_sizes(stride)})) {{")
        self.line(f"{handle} = {self._by_python(text, output.name, symbols, place)};")
        self.check(f"!{handle}")
        self.line("}")


def symbols_of(exprs: Iterable[Expr]) -> list[str]:
    return sorted({v.name for e in exprs for v in e.variables})
