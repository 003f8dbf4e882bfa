"""Install fxstack as soon as a program imports torch, if ``FXSTACK=1`` is in the environment.

``fxstack.pth`` imports this module when Python starts; without the variable it imports nothing. The module
imports neither torch nor fxstack before the program imports torch.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.abc import MetaPathFinder


class _WaitForTorch(MetaPathFinder):
    """Installs fxstack when ``torch`` has been executed."""

    def find_spec(self, fullname, path=None, target=None):  # noqa: ANN001, ANN201, ARG002
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):  # noqa: ANN001, ANN202
            del spec.loader.exec_module
            execute(module)
            import fxstack  # noqa: PLC0415 - it imports torch

            fxstack.install()

        spec.loader.exec_module = exec_module
        return spec


def start() -> None:
    """Wait for the import of torch, or install at once if torch is imported."""
    if "torch" in sys.modules:
        import fxstack  # noqa: PLC0415

        fxstack.install()
    elif not any(isinstance(finder, _WaitForTorch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WaitForTorch())


start()
