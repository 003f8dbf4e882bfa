"""The errors of this package."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class InductorError(Exception):
    """Base of this package's errors."""


class NotLowered(InductorError):  # noqa: N818 - it is a reason, caught by the lowering loop
    """A lowering rule declines this call; the text says why. The call is then made through ATen."""


class UnsupportedGraphError(InductorError):
    """The graph breaks the contract of ``compile_graph``: the text names the node and the rule."""


class ArgumentError(InductorError, ValueError):
    """A compiled graph was called with arguments that it is not for. The text names the input, what it must be and what it is."""


class NoCompilerError(InductorError):
    """No C compiler was found, none that works, or none whose libraries can be loaded. The text says what to do."""


class CompilerFailedError(InductorError):
    """The compiler rejected generated code: a defect of this package. Carries the command and its output.

    ``reason`` is the first line of the output that names an error, ``script`` the file that shows it alone, if one was written.
    """

    script: Path | None = None

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason or first_error(text)


class CompilerKilledError(CompilerFailedError):
    """A signal ended the C compiler. The generated code is not known to be wrong."""


def first_error(output: str) -> str:
    """The first line of a compiler's output that names an error, without the directory of the file; else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)]
    line = (named or lines[-1:] or [""])[0]
    return re.sub(r"^\S*/(?=[^/\s]+:\d+)", "", line)[:300]


class ReproError(InductorError):
    """A graph cannot be written as a script that runs alone. The text names what stands against it."""


class VerificationError(InductorError):
    """An IR invariant does not hold; the text names the kernel, the value and the rule."""


class IndexOutOfRange(InductorError):  # noqa: N818 - internal: eager's own error replaces it
    """A kernel met an index out of range. The graph is run again by ATen's operators, which raise what eager raises."""


class UnexpectedResult(InductorError, RuntimeError):  # noqa: N818 - says what was found
    """An operator of ATen returned another dtype, shape or nothing where the graph says otherwise: nothing may read it."""


TRITON_HINT = "CUDA kernels need Triton: pip install 'fxstack-inductor[cuda]'"


class TritonMissing(InductorError):  # noqa: N818 - says what is missing
    """Triton is needed and cannot be imported. The text says what to install."""


class CudaError(InductorError, RuntimeError):
    """The CUDA driver reports an error. The text holds the driver's own words.

    It is a RuntimeError, as what eager raises of the same error is.
    """
