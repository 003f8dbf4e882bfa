"""``fxstack run``: run a program on fxstack as Python itself would run it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from fxstack.debug.artefacts import DEBUG_VARIABLE, FOLDER_VARIABLE, REPORT_VARIABLE
from fxstack.dropin.program import Program


def check_script(command: str, script: str, *, module: bool) -> None:
    """Check that a script is a file.

    Raises:
        typer.Exit: status 2 if it is none.
    """
    if not module and not Path(script).is_file():
        text = f"{script} is no file; to run a module use: fxstack {command} -m {script}"
        sys.stderr.write(f"fxstack {command}: {text}\n")
        raise typer.Exit(2)


def run_program(
    script: str, arguments: Sequence[str], *, module: bool, debug: str, folder: str, report: str
) -> None:
    """Run ``script`` with ``arguments``. ``torch.compile`` is fxstack in this process and in its children.

    Raises:
        typer.Exit: status 2 if the script does not exist.
    """
    check_script("run", script, module=module)
    # Children inherit these: FXSTACK installs fxstack when they start.
    os.environ["FXSTACK"] = "1"
    os.environ.setdefault(DEBUG_VARIABLE, debug)
    for variable, given in ((FOLDER_VARIABLE, folder), (REPORT_VARIABLE, report)):
        if given:
            os.environ[variable] = given
    try:
        Program(script, tuple(arguments), module).run()
    except Exception as error:
        own = error.__traceback__
        while own is not None and own.tb_next is not None and _is_ours(own.tb_frame.f_code.co_filename):
            own = own.tb_next
        sys.excepthook(type(error), error.with_traceback(own), own)
        raise typer.Exit(1) from None


def _is_ours(file: str) -> bool:
    """Return whether a file runs the program: one of this package, or of ``runpy``."""
    return file.startswith(str(Path(__file__).parents[1])) or "runpy" in file
