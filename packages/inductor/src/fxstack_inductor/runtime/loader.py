"""Compile C source and load its functions."""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fxstack_inductor.runtime.cache import LIBRARY, SOURCE, Cache
from fxstack_inductor.runtime.toolchain import find_toolchain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fxstack_inductor.options import InductorOptions


def load_functions(
    source: str, arguments: Mapping[str, int], options: InductorOptions
) -> dict[str, Any]:
    """The functions of ``source`` by name, each taking the given number of pointers and 64-bit integers."""
    return functions_of(load_library(source, options), arguments)


def load_library(source: str, options: InductorOptions) -> ctypes.CDLL:
    """``source`` compiled, from the disk cache if it is there, and loaded."""
    toolchain = find_toolchain(options)
    if options.use_cache:
        options.cache_dir.mkdir(parents=True, exist_ok=True)
        cache = Cache(options.cache_dir, options.cache_limit)
        key = cache.key(source, toolchain.identity)
        return ctypes.CDLL(str(cache.build(key, source, toolchain.compile)))
    with tempfile.TemporaryDirectory(prefix="fxstack-") as name:
        directory = Path(name)
        (directory / SOURCE).write_text(source)
        toolchain.compile(directory / SOURCE, directory / LIBRARY)
        # The file may go once it is mapped.
        return ctypes.CDLL(str(directory / LIBRARY))


def functions_of(library: ctypes.CDLL, arguments: Mapping[str, int]) -> dict[str, Any]:
    functions = {}
    for name, count in arguments.items():
        function = library[name]
        function.argtypes = [ctypes.c_int64] * count
        function.restype = None
        functions[name] = function
    return functions
