"""Everything that only a GPU can show, in calls of at most seven minutes.

    python gpu.py FOLDER [--dry] [--sections kernels models ...] [--minutes 7] [--again]

Each section runs in a process of its own and writes its rows to FOLDER/<section>.json. A failure is a row, never the end: where a
process dies, hangs, or loses its device, another one goes on behind the case that it was at. A further call with the same folder
goes on where the time ended: it leaves out sections that are done, and keeps the rows of the others; ``--again`` forgets them.
A table of at most 40 lines comes last; FOLDER/table.txt has every row. ``--dry`` needs no GPU: tiny sizes on CPU, kernels in
Triton's interpreter.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import gpu_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpu_measure import Machine, Report

ROOT = Path(__file__).parents[2]
SOURCES = [
    ROOT / "packages" / name / "src"
    for name in ("interchange", "capture", "functionalize", "partition", "inductor")
]

SHARES = {
    "environment": 0.04,
    "kernels": 0.14,
    "dropout": 0.03,
    "attention": 0.1,
    "real": 0.28,
    "compile": 0.18,
    "models": 0.15,
    "products": 0.08,
    "launch": 0.04,
    "opdb": 0.06,
}
"""Sections, what tells most first, and the share of the time that each may take; what one leaves, the others have."""
LATE = 5
"""Seconds that a section may take longer than it was told: the whole never takes longer than it was given."""
LEAST = 8
"""Seconds for which no section is worth starting."""
RESTARTS = 8
"""Further processes of one section."""
SHORT = 10
"""Seconds for which no further process is worth starting."""
STOPPED = "stopped: out of time"


def _sections() -> dict[str, Callable[[Report, Machine], None]]:
    """Imported where a section runs: the process that starts them needs no torch."""
    import gpu_models
    import gpu_sections

    named = {"compile": gpu_models.compile_models, "real": gpu_models.real, "models": gpu_models.models}
    return {name: named.get(name) or getattr(gpu_sections, name) for name in SHARES}


def run_section(name: str, folder: Path, seconds: float, *, dry: bool) -> None:
    from gpu_measure import Machine, Report

    machine = Machine(dry, folder, seconds)
    _sections()[name](Report.start(name, machine), machine)


def _environment() -> dict[str, str]:
    """The variables of a section's process: it imports the packages from this checkout, installed or not."""
    paths = [*map(str, SOURCES), str(ROOT / "integration" / "src"), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "TRANSFORMERS_VERBOSITY": "error",
        "PYTHONPATH": os.pathsep.join(p for p in paths if p),
    }


def build_capture() -> str:
    """Build capture's extension module where it is not built yet, or not of these sources; what went wrong, or nothing."""
    check = [sys.executable, "-c", "import fxstack_capture._native"]
    if _ended(check, ROOT) is None:
        return ""
    package = ROOT / "packages" / "capture"
    return compile_extension(package, package / "src") or _ended(check, ROOT) or ""


def compile_extension(package: Path, target: Path) -> str:
    """Compile the extension of ``package`` into the packages under ``target``; what went wrong, or nothing.

    It is done where pyproject.toml is not: of setuptools before 77 none reads that, and none is needed to compile.
    """
    with tempfile.TemporaryDirectory() as folder:
        for name in ("setup.py", "src"):
            (Path(folder) / name).symlink_to(package / name)
        command = ["setup.py", "-q", "build_ext", "--force", "--build-lib", str(target)]
        return _ended([sys.executable, *command], Path(folder)) or ""


def _ended(command: list[str], folder: Path) -> str | None:
    """The end of what a command that failed wrote to stderr."""
    done = subprocess.run(
        command, cwd=folder, env=_environment(), capture_output=True, text=True, check=False
    )
    return None if done.returncode == 0 else done.stderr[-2000:] or f"status {done.returncode}"


def start_section(name: str, folder: Path, seconds: float, *, dry: bool) -> None:
    """Run a section in a process, and in further ones where that dies; all is stopped when it outstays its time."""
    (folder / f"{name}.failed").unlink(missing_ok=True)
    end, died = time.monotonic() + seconds, []
    while len(died) <= RESTARTS and (not died or end - time.monotonic() > SHORT):
        status = _section_process(name, folder, end - time.monotonic(), dry=dry)
        if not status:
            break
        died.append(status)
        if status == STOPPED:
            skip_last(name, folder)
            break
    if died:
        (folder / f"{name}.failed").write_text(", ".join(died))
    rows = gpu_table.rows_of(folder, name)
    if rows and STOPPED not in died and not any("skipped" in row for row in rows):
        (folder / f"{name}.done").touch()


def skip_last(name: str, folder: Path) -> None:
    """Mark the case that ran when the time ended, so that a further call runs it."""
    rows = gpu_table.rows_of(folder, name)
    if rows and str(rows[-1].get("failed", "")).startswith("the process ended"):
        rows[-1]["skipped"] = rows[-1].pop("failed").replace("the process ended", STOPPED)
        (folder / f"{name}.json").write_text(json.dumps({"section": name, "rows": rows}, indent=1))


def forget(name: str, folder: Path) -> None:
    """Remove what an earlier call left of a section."""
    for pattern in (f"{name}.*", f"{name}-*.*"):
        for old in folder.glob(pattern):
            old.unlink()


def _section_process(name: str, folder: Path, seconds: float, *, dry: bool) -> str:
    """How the process ended, unless it ended well."""
    command = [sys.executable, __file__, str(folder), *(["--dry"] if dry else [])]
    command += ["--only", name, "--seconds", str(seconds)]
    environment = _environment()
    environment["FXSTACK_INDUCTOR_CACHE_DIR"] = str(folder / "cache")
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache-torch")
    if dry:
        environment["TRITON_INTERPRET"] = "1"
    with (folder / f"{name}.log").open("a") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            code = process.wait(seconds + LATE)
        except subprocess.TimeoutExpired:
            code = None
        with suppress(ProcessLookupError):  # nothing that it has started is left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if code is None:
        return STOPPED
    return f"status {code}" if code else ""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--sections", nargs="*", default=list(SHARES))
    parser.add_argument("--minutes", type=float, default=7.0)
    parser.add_argument("--again", action="store_true")
    for inner in ("--only", "--case", "--real"):
        parser.add_argument(inner, help=argparse.SUPPRESS, nargs=None if inner == "--only" else "*")
    parser.add_argument("--seconds", type=float, default=60.0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    folder, dry, seconds = arguments.folder.resolve(), arguments.dry, arguments.seconds
    if arguments.case or arguments.real:
        run_model(arguments.case, arguments.real, folder, dry=dry)
        return
    if arguments.only:
        run_section(arguments.only, folder, seconds, dry=dry)
        return
    end = time.monotonic() + 60 * arguments.minutes
    folder.mkdir(parents=True, exist_ok=True)
    if problem := build_capture():
        print(f"capture's extension cannot be built:\n{problem}")
    run_sections(arguments.sections, folder, end, dry=dry, again=arguments.again)
    (folder / "table.txt").write_text(gpu_table.full(folder, arguments.sections))
    print(gpu_table.short(folder, arguments.sections))


def run_sections(sections: list[str], folder: Path, end: float, *, dry: bool, again: bool) -> None:
    """Run what is not done of the sections, each within its share of the time that is left."""
    for name in sections if again else ():
        forget(name, folder)
    rest = [name for name in sections if not (folder / f"{name}.done").exists()]
    for position, name in enumerate(rest):
        share = SHARES[name] / sum(SHARES[n] for n in rest[position:])
        seconds = (end - time.monotonic() - LATE) * share
        if end - time.monotonic() > LEAST + LATE:
            start_section(name, folder, seconds, dry=dry)


def run_model(case: list[str] | None, real: list[str] | None, folder: Path, *, dry: bool) -> None:
    """Compile one model, in a process of the section ``compile`` or ``real``."""
    import gpu_models
    from gpu_measure import Machine

    machine = Machine(dry, folder, 0.0)
    if case:
        gpu_models.compile_model(machine, gpu_models.ModelCase(*case))
    else:
        gpu_models.real_worker(machine, *real or ())


if __name__ == "__main__":
    if sys.argv[1:] == ["--dry"]:  # seconds of it, for the tests
        sys.argv[1:] = [tempfile.mkdtemp(), "--dry", "--sections", "environment", "launch"]
    main()
