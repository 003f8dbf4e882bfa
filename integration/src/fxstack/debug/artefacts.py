"""The artefacts of a compilation that can be shown, with their names in ``FXSTACK_DEBUG`` and in ``TORCH_LOGS``."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Final

from fxstack.debug.passes import AFTER, STOP_VARIABLE, all_passes, is_pass, nearest_text, warn_of_unknown_stop
from fxstack_interchange.user_warnings import warn_user

DEBUG_VARIABLE: Final = "FXSTACK_DEBUG"
FOLDER_VARIABLE: Final = "FXSTACK_DEBUG_DIR"
REPORT_VARIABLE: Final = "FXSTACK_REPORT"
TRACE_VARIABLE: Final = "FXSTACK_TRACE"
ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class Artefact:
    """One kind of text.

    ``logger`` is the logger of torch that shows the artefact under ``torch_names``; torch gives it handlers.
    ``suffix`` is the extension of files. ``of_stages``: the artefact is made from a graph after capture. A
    program from the disk cache has no such graph.
    """

    name: str
    sentence: str
    logger: str = ""
    torch_names: tuple[str, ...] = ()
    suffix: str = "txt"
    of_stages: bool = False


_LOGGERS: Final = {
    "": "",
    "dynamo": "torch._dynamo",
    "aot": "torch._functorch.aot_autograd",
    "inductor": "torch._inductor",
}

# name | logger | suffix | sentence | names in TORCH_LOGS
_TABLE: Final = """
frames | dynamo | txt | The verdict on each frame: compiled, plain Python (and why), or raises. |
breaks | dynamo | txt | Each graph break: the reason, the fix and the line. | graph_breaks
recompiles | dynamo | txt | Each recompilation: the guard that failed, its old and its new value. | recompiles, recompiles_verbose
guards | dynamo | txt | The guards of each entry, and the line that needed each guard. | guards, verbose_guards
bytecode | dynamo | py | The code that replaces a frame. | bytecode, side_effects
resume |  | py | The code that replaces the rest of a frame, after a graph break. |
graph | dynamo | py | The graph that capture gives to the backend. | graph_code, graph, graph_code_verbose, graph_sizes, pre_grad_graphs
joint | aot | py | The joint graph: forward and backward. | aot_joint_graph
partition | aot | py | The forward and the backward graph, or the graph without gradients. | aot_graphs, aot_graphs_effects, post_grad_graphs
loops | inductor | txt | The loop nests of the kernels, after fusion. | ir_post_fusion
schedule | inductor | txt | The steps of the host program in order, and which fusions were refused. | schedule, fusion, compute_dependencies
kernels | inductor | c | The generated kernels, in C or Triton. | output_code, kernel_code
host | inductor | py | The program that runs the kernels, as Python. | output_code
passes |  | txt | Each pass: its seconds, and why it did nothing. |
summary |  | txt | A table at exit: functions, graphs, breaks, recompilations, seconds by stage, cache. |
"""  # noqa: E501 - a row a line


def _artefact(row: str) -> Artefact:
    """Return an artefact from its row of the table: name, logger, suffix, sentence, names in torch."""
    name, logger, suffix, sentence, names = (cell.strip() for cell in row.split("|"))
    of_stages = name == "passes" or logger in ("aot", "inductor")
    return Artefact(
        name, sentence, _LOGGERS[logger], tuple(names.replace(",", "").split()), suffix, of_stages
    )


ARTEFACTS: Final = tuple(map(_artefact, _TABLE.strip().splitlines()))
BY_NAME: Final = {artefact.name: artefact for artefact in ARTEFACTS}


@cache
def _known_names(text: str) -> set[str]:
    """Return the artefacts and passes that a value of ``FXSTACK_DEBUG`` names. Warn once about unknown names."""
    for unknown in unknown_names(DEBUG_VARIABLE, text):
        warn_user(unknown, UserWarning)
    names = _words(text)
    after = {name for name in names if AFTER in name}
    return after | (BY_NAME.keys() if ALL in names else names & BY_NAME.keys())


def _words(text: str) -> set[str]:
    return {name.strip().lower() for name in text.split(",")} - {""}


def unknown_names(place: str, text: str) -> list[str]:
    """Return a text for each unknown name in a value of ``FXSTACK_DEBUG``, or of the option ``place``."""
    return [
        f"{place}: there is no {name!r}. {_nearest(name)}"
        for name in sorted(_words(text) - BY_NAME.keys() - {ALL})
        if not (AFTER in name and is_pass(*name.split(AFTER, 1)))
    ]


def _nearest(name: str) -> str:
    """Return the hint for an unknown name in ``FXSTACK_DEBUG``: the nearest known artefacts or passes."""
    if AFTER in name:
        return nearest_text(name, [f"{p.stage}{AFTER}{p.name}" for p in all_passes()], "fxstack passes")
    return nearest_text(name, [*BY_NAME, ALL], "fxstack artefacts")


def check_names() -> None:
    """Warn about unknown names in ``FXSTACK_DEBUG`` and ``FXSTACK_STOP_AFTER``."""
    _known_names(os.environ.get(DEBUG_VARIABLE, ""))
    warn_of_unknown_stop(os.environ.get(STOP_VARIABLE, ""))


def is_printed(name: str) -> bool:
    """Return whether ``FXSTACK_DEBUG`` asks for an artefact now; programs may change the variable."""
    return name in _known_names(os.environ.get(DEBUG_VARIABLE, ""))


def is_printed_after(stage: str, name: str) -> bool:
    """Return whether ``FXSTACK_DEBUG`` asks for the state after a pass, as ``stage:after=name``."""
    text = os.environ.get(DEBUG_VARIABLE, "")
    return AFTER in text and f"{stage}{AFTER}{name}" in _known_names(text)


def folder() -> str:
    """Return the folder for artefacts: ``FXSTACK_DEBUG_DIR``, or torch's folder under
    ``TORCH_COMPILE_DEBUG=1``, or "".
    """
    chosen = os.environ.get(FOLDER_VARIABLE, "")
    if chosen or os.environ.get("TORCH_COMPILE_DEBUG") != "1":
        return chosen
    return _folder_of_run(os.environ.get("TORCH_COMPILE_DEBUG_DIR", ""), os.getpid())


@cache
def _folder_of_run(root: str, process: int) -> str:
    """Return the folder that torch's compiler would use, and say once where it is."""
    now = datetime.now().strftime("%Y_%m_%d_%H_%M_%S_%f")  # noqa: DTZ005 - local time, as torch
    path = str(Path(root).absolute() / "torch_compile_debug" / f"run_{now}-pid_{process}" / "fxstack")
    tell(f"fxstack: TORCH_COMPILE_DEBUG: what is compiled is written into {path}\n")
    return path


def tell(text: str) -> None:
    """Write a text to stderr. Do nothing if the program has closed or removed stderr."""
    with suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(text)


def report_folder() -> str:
    """Return the folder of ``FXSTACK_REPORT``, or ""."""
    return os.environ.get(REPORT_VARIABLE, "")


def trace_folders() -> list[str]:
    """Return the folders into which the record of the process is written."""
    folders = (report_folder(), os.environ.get(TRACE_VARIABLE, ""))
    return [folder for folder in dict.fromkeys(folders) if folder]


def torch_loggers(artefact: Artefact) -> list[logging.Logger]:
    """Return the loggers of torch that show an artefact, as ``TORCH_LOGS`` or ``torch._logging.set_logs`` say."""
    if not artefact.logger:
        return []
    # Each artefact name of torch.compile has its own logger, a child of the package's logger.
    loggers = _torch_loggers(artefact) or [logging.getLogger(f"{artefact.logger}.fxstack")]
    return [log for log in loggers if log.propagate and log.isEnabledFor(logging.DEBUG)][:1]


@cache
def _torch_loggers(artefact: Artefact) -> list[logging.Logger]:
    """Return torch's loggers for an artefact. Torch shows their records if ``TORCH_LOGS`` names the artefact."""
    from torch._logging import getArtifactLogger  # noqa: PLC0415 - registers names, which few programs need

    return [getArtifactLogger(f"{artefact.logger}.fxstack", name) for name in artefact.torch_names]


def is_wanted(name: str) -> bool:
    """Return whether anything shows an artefact now."""
    return is_printed(name) or bool(folder()) or bool(torch_loggers(BY_NAME[name]))


def needs_stage_graphs() -> bool:
    """Return whether anything shows an artefact that programs from the disk cache do not have."""
    has_artefact = any(is_wanted(artefact.name) for artefact in ARTEFACTS if artefact.of_stages)
    return has_artefact or AFTER in os.environ.get(DEBUG_VARIABLE, "") or bool(os.environ.get(STOP_VARIABLE))
