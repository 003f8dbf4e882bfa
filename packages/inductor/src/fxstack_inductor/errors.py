"""The errors of this package."""

from __future__ import annotations

import re
from pathlib import Path


class InductorError(Exception):
    """Base of this package's errors."""


class NotLowered(InductorError):  # noqa: N818 - it is a reason, caught by the lowering loop
    """A lowering rule declines this call; the text is the reason. ATen then makes the call."""


class UnsupportedGraphError(InductorError):
    """The graph breaks the contract of ``compile_graph``; the text names the node and the rule."""


class ArgumentError(InductorError, ValueError):
    """A compiled graph got wrong arguments; the text names the input, the requirement and the value."""


class NoCompilerError(InductorError):
    """There is no working C compiler, or its libraries cannot be loaded. The text says what to do."""


class CompilerFailedError(InductorError):
    """The C compiler rejected generated code, which is a defect of this package; the text has command and output.

    ``reason`` is the first line of the output that names an error; ``script`` is the file that reproduces
    the error, if a file was written.
    """

    script: Path | None = None

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason or first_error(text)


class CompilerKilledError(CompilerFailedError):
    """A signal killed the C compiler (too little memory, usually). The generated code is not known to be wrong."""


def first_error(output: str) -> str:
    """Return the first line of compiler output that names an error, else the last line. Directories are removed."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    named = [line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)]
    line = (named or lines[-1:] or [""])[0]
    return re.sub(r"^\S*/(?=[^/\s]+:\d+)", "", line)[:300]


class ReproError(InductorError):
    """A graph cannot be written as a standalone script; the text is the reason."""


class VerificationError(InductorError):
    """An IR invariant does not hold; the text names the kernel, the value and the rule."""


class IndexOutOfRange(InductorError):  # noqa: N818 - internal: eager's own error replaces it
    """A kernel read an index out of range. The caller runs the graph again by ATen's operators, which raise eager's error."""


class UnexpectedResult(InductorError, RuntimeError):  # noqa: N818 - says what was found
    """The result of an ATen operator has another dtype or shape than the graph states; no kernel may read the result."""


class NotFiniteError(InductorError, AssertionError):
    """Under the option ``nan_asserts``, a tensor has NaN or infinite elements."""


class WrongFakeError(InductorError, RuntimeError):
    """A result of a custom operator differs from the result of its fake function; the text names both."""


TRITON_HINT = "CUDA kernels need Triton: pip install 'fxstack-inductor[cuda]'"


class TritonMissing(InductorError):  # noqa: N818 - says what is missing
    """The graph needs Triton, which cannot be imported; the text says what to install."""


class CudaError(InductorError, RuntimeError):
    """The CUDA driver reports an error; the text has the driver's message.

    It is a RuntimeError, like eager's exception for the same error.
    """
