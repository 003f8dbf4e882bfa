"""Write all kernels of a graph as one self-contained C file; equal kernels become one function."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from fxstack_inductor.codegen.c.strategy import function_text
from fxstack_inductor.codegen.c.threads import KERNEL
from fxstack_inductor.failures import about
from fxstack_inductor.ir.kernel import Kernel, form_of
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.runtime.parts import in_parts


def _header(name: str) -> str:
    return (files("fxstack_inductor.codegen") / name).read_text()


PRELUDE = "\n".join(_header(name) for name in ("prelude.h", "vector_math.h"))
RANDOM = _header("mersenne.h")
"""The C generator of random numbers, for graphs with dropout (``runtime.dropout``)."""


@dataclass(frozen=True)
class CSource:
    """One C file: its ``text``, the C function of each kernel by the kernel's name, and the functions' declarations.

    Host programs in C begin with the declarations.
    """

    text: str
    functions: dict[str, str]
    declarations: str
    """The heads of all functions, for a host program in C."""


def _continued(line: str) -> str:
    """Return a line of the user's program for a ``//`` comment: a final backslash would continue the comment."""
    bare = line.rstrip("\\ \t\f\v\r")
    return bare if bare == line.rstrip() else f"{bare} (continued)"


def c_source(kernels: Sequence[Kernel], options: InductorOptions, *, random: bool = False) -> CSource:
    """Return the file for ``kernels``; ``random`` adds the random number generator of the host program."""
    names: dict[str, str] = {}
    functions: dict[str, str] = {}
    heads: list[str] = []
    pieces: list[str] = [RANDOM] if random else []
    texts: dict[Hashable, str] = {}
    for kernel in kernels:
        form = form_of(kernel)
        with about(*kernel.origins):
            text = texts.get(form) or function_text(kernel, options.grain)
        if form is not None:
            texts[form] = text
        if text not in names:
            names[text] = f"kernel_{len(names)}"
            notes = [f"/* {', '.join(kernel.origins)} */"]
            notes += [f"// {_continued(line)}" for line in kernel.comments[:8]]
            pieces.append("\n".join([*notes, text.replace(KERNEL, names[text])]))
            heads.append(_head(pieces[-1], names[text]))
        functions[kernel.name] = names[text]
    prelude = f"#define FXSTACK_EXACT_MATH\n{PRELUDE}" if options.exact_math else PRELUDE
    return CSource(in_parts(prelude, pieces), functions, "\n".join(heads))


def _head(text: str, name: str) -> str:
    """Return the declaration of function ``name``, whose definition is in ``text``."""
    start = text.index(f"\nvoid {name}(") + 1
    # Inlined into the host program, the function would be compiled without optimisation, like the host.
    return f"extern __attribute__((noinline)) {text[start : text.index(') {', start)]});"
