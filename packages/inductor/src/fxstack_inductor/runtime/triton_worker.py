"""Compile the kernels of one generated module with Triton: JSON on stdin, a zip archive of cubins as result.

The module also runs as a script in worker processes, so that kernels compile in parallel; it imports nothing
but Triton.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import traceback
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

ENTRY = re.compile(r"\.entry\s+(\w+)\s*\((.*?)\)", re.DOTALL)


def import_file(path: Path, name: str) -> Any:
    """Return the module in ``path``; Triton reads kernels' source back from the file."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_kernel(function: object, entry: Mapping[str, Any], capability: int) -> Any:
    """Return Triton's compiled kernel of ``function`` for ``sm_<capability>``, without a GPU.

    ``entry`` holds ``signature``, ``constants`` (by name), ``warps``, ``stages``, ``debug``. All pointers are
    declared to be multiples of 16 bytes, which enables 16-byte accesses.
    """
    names = list(entry["signature"])
    kinds = entry["signature"]
    aligned = [(k,) for k, name in enumerate(names) if kinds[name].startswith("*")]
    program = ASTSource(
        fn=function,
        signature=kinds,
        constexprs={(names.index(name),): value for name, value in entry["constants"].items()},
        attrs={where: [["tt.divisibility", 16]] for where in aligned},
    )
    options = {
        "num_warps": entry["warps"],
        "num_stages": entry["stages"],
        "debug": entry["debug"],
        "sanitize_overflow": False,
        "enable_fp_fusion": False,  # a*b + c rounds twice, as it does in eager
        "enable_reflect_ftz": False,  # libdevice keeps denormal numbers, as eager does
    }
    return triton.compile(program, target=GPUTarget("cuda", capability, 32), options=options)


def facts(compiled: Any) -> dict[str, Any]:
    """Return the facts about a compiled kernel that a launcher needs: the fields of ``cubins.Cubin``."""
    entry = ENTRY.search(compiled.asm["ptx"])
    assert entry is not None
    metadata = compiled.metadata
    scratch = getattr(metadata, "global_scratch_size", 0) or 0
    return {
        "symbol": entry.group(1),
        "parameters": entry.group(2).count(".param"),
        "threads": 32 * metadata.num_warps,
        "shared": metadata.shared,
        "scratch": scratch + (getattr(metadata, "profile_scratch_size", 0) or 0),
    }


def compile_entries(path: Path, entries: Iterable[Mapping[str, Any]], capability: int, output: Path) -> None:
    """Write ``<name>.cubin`` and ``<name>.json``, or ``<name>.failed``, of each kernel into ``output``."""
    module = import_file(path, path.stem)
    with zipfile.ZipFile(output, "w") as archive:
        for entry in entries:
            try:
                compiled = compile_kernel(getattr(module, entry["name"]), entry, capability)
            except Exception:  # Triton's compiler may raise any exception
                archive.writestr(f"{entry['name']}.failed", traceback.format_exc())
                continue
            archive.writestr(f"{entry['name']}.cubin", compiled.asm["cubin"])
            archive.writestr(f"{entry['name']}.json", json.dumps(facts(compiled)))


if __name__ == "__main__":
    request = json.load(sys.stdin)
    compile_entries(Path(request["path"]), request["entries"], request["capability"], Path(request["output"]))
