"""Which loops of a C file a compiler makes vectors of, by its own report."""

import dataclasses

from inductor_checks import FAST

from fxstack_inductor.runtime.toolchain import _run, find_toolchain

REPORTS = {
    # Neither makes calls of memcpy and memset.
    "gcc": ("-fopt-info-vec-optimized", "-fno-tree-loop-distribute-patterns"),
    "clang": (
        *("-Rpass=loop-vectorize|slp-vectorizer", "-g1"),
        *("-mllvm", "-disable-loop-idiom-memcpy", "-mllvm", "-disable-loop-idiom-memset"),
    ),
}


def vector_lines(text, compiler, folder):
    """The numbers of the lines, from 1, at which ``compiler`` reports vectors."""
    toolchain = find_toolchain(dataclasses.replace(FAST, optimization=3, compiler=compiler))
    source = folder / "kernels.c"
    source.write_text(text)
    flags = [flag for flag in toolchain.flags if flag != "-w"]
    command = [toolchain.path, *flags, *REPORTS[compiler], str(source), "-o", str(folder / "kernels.so")]
    done = _run([*command, *toolchain.libraries])
    assert done.returncode == 0, done.stderr
    found = (
        line.split(":") for line in done.stderr.splitlines() if "vectorized" in line and "not " not in line
    )
    return {int(parts[1]) for parts in found if parts[0].endswith("kernels.c")}
