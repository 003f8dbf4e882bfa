"""Run an unedited program on fxstack, as Python itself would run it."""

from __future__ import annotations

import os
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

from fxstack.dropin.installing import install


@dataclass(frozen=True, slots=True)
class Program:
    """A Python file with its arguments, or a module."""

    script: str
    """The path of the file, or the name of the module."""
    arguments: tuple[str, ...] = ()
    module: bool = False
    """Whether ``script`` is the name of a module."""

    def run(self) -> None:
        """Run the program in this process on fxstack, as Python runs it."""
        os.environ["FXSTACK"] = "1"
        install()
        self.execute()

    def execute(self) -> None:
        """Run the program in this process as Python runs it."""
        sys.argv = [self.script, *self.arguments]
        if self.module:
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(self.script, run_name="__main__", alter_sys=True)
        else:
            sys.path.insert(0, str(Path(self.script).resolve().parent))
            runpy.run_path(self.script, run_name="__main__")
