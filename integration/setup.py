"""Put ``fxstack.pth`` beside the packages: Python executes it at its start, and ``FXSTACK=1`` installs fxstack."""  # noqa: INP001

from __future__ import annotations

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PTH = "fxstack.pth"


class BuildWithPth(build_py):
    """Copies the file to the root of what is built, which is ``site-packages`` after the installation."""

    def run(self) -> None:
        super().run()
        self.copy_file(str(Path("src") / PTH), str(Path(self.build_lib) / PTH))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), str(Path(self.build_lib) / PTH)]


setup(cmdclass={"build_py": BuildWithPth})
