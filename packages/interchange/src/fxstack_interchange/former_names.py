"""Import of modules of this package by the names that they had before version 1.1.

Version 1.2 removes these names. Such an import returns the present module itself, so that ``isinstance``
holds for its classes.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

_PACKAGE: Final = __package__
_MOVED: Final = {
    "format": "errors files show signature verify",
    "torch_facts": "compiled_autograd torch_errors torch_settings",
}
_ENCODING: Final = "arguments bare constants container document nodemeta schema targets values"
_EAGER_FACTS: Final = "checks dtypes effects iteration layouts raising undefined"
MODULES: Final = {
    **{name: f"{folder}.{name}" for folder, names in _MOVED.items() for name in names.split()},
    **{f"format.{name}": f"format.encoding.{name}" for name in _ENCODING.split()},
    "eager_facts": "torch_facts",
    **{f"eager_facts.{name}": f"torch_facts.{name}" for name in _EAGER_FACTS.split()},
}
"""Former name of each module, relative to the package, with its present name."""


class _Finder(MetaPathFinder):
    """Finds modules by their former names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Return a module's present form for its former name, with a warning. The import system calls this method."""
        del path, target
        moved = MODULES.get(fullname.removeprefix(f"{_PACKAGE}."))
        if moved is None or not fullname.startswith(f"{_PACKAGE}."):
            return None
        present = f"{_PACKAGE}.{moved}"
        warnings.warn(
            f"{fullname} is now {present}; the former name goes with version 1.2 of fxstack-interchange.",
            DeprecationWarning,
            stacklevel=2,
        )
        return ModuleSpec(fullname, _Loader(present))


class _Loader(Loader):
    """Gives the module ``present`` to whoever imports it by its former name."""

    def __init__(self, present: str) -> None:
        self.present = present

    def create_module(self, spec: ModuleSpec) -> None:
        del spec

    def exec_module(self, module: ModuleType) -> None:
        # The import system returns what sys.modules holds after this call.
        sys.modules[module.__name__] = import_module(self.present)


def install() -> None:
    """Make modules importable by their former names."""
    # In front of the finder of files, which would load the modules of a moved folder a second time.
    sys.meta_path.insert(0, _Finder())
    for name in ("show", "verify"):
        # An import that finds its module here leaves the function of the same name in the package's namespace.
        sys.modules[f"{_PACKAGE}.{name}"] = sys.modules[f"{_PACKAGE}.{MODULES[name]}"]
