"""``fxstack run``: run a program on fxstack as Python itself would run it."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from fxstack.debug.artefacts import DEBUG_VARIABLE, FOLDER_VARIABLE, REPORT_VARIABLE
from fxstack.dropin.installing import install


def run_program(
    script: str, arguments: Sequence[str], *, module: bool, debug: str, folder: str, report: str
) -> None:
    """Run ``script`` with ``arguments``. ``torch.compile`` is fxstack in this process and in its children.

    Raises:
        typer.Exit: status 2 if the script does not exist.
    """
    if not module and not Path(script).is_file():
        sys.stderr.write(f"fxstack run: {script} is no file; to run a module use: fxstack run -m {script}\n")
        raise typer.Exit(2)
    # Children inherit these: FXSTACK installs fxstack when they start.
    os.environ["FXSTACK"] = "1"
    os.environ.setdefault(DEBUG_VARIABLE, debug)
    for variable, given in ((FOLDER_VARIABLE, folder), (REPORT_VARIABLE, report)):
        if given:
            os.environ[variable] = given
    install()
    sys.argv = [script, *arguments]
    if module:
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, str(Path(script).resolve().parent))
        runpy.run_path(script, run_name="__main__")
