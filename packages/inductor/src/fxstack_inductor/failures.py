"""Handle defects of this package: after one warning, ATen's operators run the graph.

Defects are generated code that the compiler rejects, and exceptions of lowering, scheduling and code
generation. An exception is no defect if it reports a missing tool of the machine or an operation that cannot
be lowered.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch.fx import GraphModule

from fxstack_inductor.errors import (
    CompilerFailedError,
    CompilerKilledError,
    CudaError,
    NoCompilerError,
    NotLowered,
    TritonMissing,
)
from fxstack_interchange.format.metadata import user_frame
from fxstack_interchange.passes import StoppedAfterPass
from fxstack_interchange.user_warnings import warn_user

LOG = logging.getLogger(__name__)
NO_DEFECTS = (NotLowered, NoCompilerError, TritonMissing, CudaError, StoppedAfterPass)
"""Exceptions that always reach the callers of ``compile_graph``."""
SCRIPT = (
    "with the script that options={'repro_dir': 'FOLDER'} or FXSTACK_REPRO_DIR=FOLDER in the environment "
    "writes for each graph"
)
TRACEBACK = "with the program, and the traceback that FXSTACK_RAISE_FAILURES=1 in the environment gives"


@dataclass(frozen=True, slots=True)
class Failure:
    """A graph, or only its FX node ``node``, that ATen runs because of a defect of this package.

    ``file`` and ``line`` (0 if unknown) are the user's. ``message`` is the text of the warning.
    """

    error: str
    """The error as one phrase, for example ``KeyError: 'x'``."""
    message: str
    node: str = ""
    file: str = ""
    line: int = 0


@contextmanager
def about(*nodes: str) -> Iterator[None]:
    """Record the names of FX ``nodes`` in an exception of the code inside, for the warning's file and line.

    An exception that has a record already keeps it: the innermost record is the most exact one.
    """
    try:
        yield
    except Exception as error:
        if not nodes_of(error):
            vars(error)["fx_nodes"] = nodes
        raise


def nodes_of(error: Exception) -> tuple[str, ...]:
    """Return the names of the FX nodes that ``about`` recorded in an exception; empty if there is no record."""
    return getattr(error, "fx_nodes", ())


def run_by_aten(
    graph_module: GraphModule, error: Exception, tell: Callable[[Failure], None]
) -> Callable[..., tuple[Any, ...]]:
    """Warn at the user's line, call ``tell``, and return ``graph_module`` as a callable that runs ATen's operators.

    The callers are ``compile_graph`` and ``ProgramCache.unpack``, after an exception that is a defect.
    """
    LOG.info("compiling a graph failed; it runs in ATen", exc_info=error)
    file, line = _place(graph_module, nodes_of(error))
    _warn(Failure(_shown(error), _message(error), file=file, line=line), tell)
    run: Callable[..., Any] = graph_module.forward
    (output,) = graph_module.graph.find_nodes(op="output")
    return run if isinstance(output.args[0], (tuple, list)) else lambda *args: (run(*args),)


def tell_defects(graph_module: GraphModule, compiled: object, tell: Callable[[Failure], None]) -> None:
    """Warn of each operator in a compiled graph that ATen runs because its rule failed; call ``tell`` for each.

    ``compile_graph`` calls this function after a successful compilation.
    """
    lowered = getattr(compiled, "lowered", None)
    program = getattr(getattr(lowered, "plan", None), "program", None)
    for fallback in getattr(program, "fallbacks", ()):
        if fallback.defect:
            file, line = _place(graph_module, (fallback.node,))
            message = (
                f"fxstack: lowering {fallback.target} failed with {fallback.reason}. This is a defect of fxstack: ATen runs "
                f"this operator. Please report it {TRACEBACK}."
            )
            _warn(Failure(fallback.reason, message, fallback.node, file, line), tell)


def _warn(failure: Failure, tell: Callable[[Failure], None]) -> None:
    """Warn at the failure's place, or at the user's current line if the place is unknown; then call ``tell``."""
    if failure.file:
        warnings.warn_explicit(failure.message, UserWarning, failure.file, failure.line)
    else:
        warn_user(failure.message, UserWarning)
    tell(failure)


def _shown(error: Exception) -> str:
    """Return the error as one short phrase, for example ``KeyError: 'x'``."""
    if isinstance(error, CompilerFailedError):
        return error.reason
    text = (str(error).splitlines() or [""])[0][:300]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _message(error: Exception) -> str:
    """Return the text of the warning: the error, the consequence, and how to report the defect."""
    if isinstance(error, CompilerKilledError):
        return f"fxstack: {error.reason}. ATen's operators run this graph."
    if not isinstance(error, CompilerFailedError):
        return (
            f"fxstack: compiling a graph failed with {_shown(error)}. This is a defect of fxstack: ATen's operators run the "
            f"graph. Please report it {TRACEBACK}."
        )
    script = SCRIPT if error.script is None else f"with the script {error.script}"
    return (
        f"fxstack: the C compiler rejected the generated code ({error.reason}). This is a defect of fxstack: ATen's operators "
        f"run the graph. Please report it {script}."
    )


def _place(graph_module: GraphModule, names: Iterable[str]) -> tuple[str, int]:
    """Return file and line of the user's code for the first of the nodes ``names`` that has a line.

    If none of these has a line, take the graph's first node that has one; ``("", 0)`` if no node has a line.
    """
    nodes = {node.name: node for node in graph_module.graph.nodes}
    named = [nodes[name] for name in names if name in nodes]
    for node in (*named, *nodes.values()):
        if (frame := user_frame(node)) is not None:
            return frame[0], frame[1]
    return "", 0
