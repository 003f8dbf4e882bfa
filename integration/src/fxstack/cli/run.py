"""``fxstack run``: run a program on fxstack as Python itself would run it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import typer

from fxstack.debug.artefacts import (
    DEBUG_VARIABLE,
    FOLDER_VARIABLE,
    REPORT_VARIABLE,
    is_printed,
    report_folder,
)
from fxstack.dropin.program import Program
from fxstack.minify.trials import end_text
from fxstack.trace import TraceError, load
from fxstack.trace.records import Ended


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

    If a report is requested, the program runs in a child process. The parent can then write the report of a
    program that is killed or ends by ``os._exit``.

    Raises:
        typer.Exit: status 2 if the script or module does not exist.
    """
    check_script("run", script, module=module)
    # Children inherit these: FXSTACK installs fxstack when they start.
    os.environ["FXSTACK"] = "1"
    os.environ.setdefault(DEBUG_VARIABLE, debug)
    for variable, value in ((FOLDER_VARIABLE, folder), (REPORT_VARIABLE, report)):
        if value:
            os.environ[variable] = value
    if report_folder():
        go_on_in_child(partial(_write_missing, Path(report_folder())))
    try:
        Program(script, tuple(arguments), module).run()
    except Exception as error:
        traceback = error.__traceback__
        while (
            traceback is not None
            and traceback.tb_next is not None
            and _is_ours(traceback.tb_frame.f_code.co_filename)
        ):
            traceback = traceback.tb_next
        in_runpy = traceback is None or _is_ours(traceback.tb_frame.f_code.co_filename)
        if in_runpy and isinstance(error, ImportError):
            # ``runpy`` has not found the module: no line of the program has run.
            sys.stderr.write(
                f"fxstack run: {error}; the module is searched in {Path.cwd()} and on sys.path\n"
            )
            raise typer.Exit(2) from None
        sys.excepthook(type(error), error.with_traceback(traceback), traceback)
        raise typer.Exit(1) from None


def go_on_in_child(after: Callable[[int, int], None]) -> None:
    """Fork, and return only in the child.

    The parent calls ``after(process id, exit code)`` of the ended child, then ends likewise.

    So the parent can report on a program that ends by a signal, by ``os._exit`` or by ``exec``.
    """
    child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG: killing the parent kills the program
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches the child directly
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda got, _frame: os.kill(child, got))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    after(child, code)
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        with suppress(OSError):  # SIGKILL has no handler
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)  # the child has run the program's exit handlers


def _write_missing(folder: Path, child: int, code: int) -> None:
    """Write the report of a child whose record has no ``Ended``: it was killed, or skipped its exit handlers."""
    record = folder / f"trace-{child}.jsonl"
    if not record.exists():
        return
    try:
        session = load(record)
        if session.of(Ended):
            return
        from fxstack.report import write_folder  # noqa: PLC0415 - Jinja takes 50 ms to import
        from fxstack.report.figures import Figures  # noqa: PLC0415 - the same

        if is_printed("summary"):
            sys.stderr.write("\n".join(["== fxstack summary", *Figures(session).sentences(), ""]))
        index = write_folder(folder)
    except (OSError, TraceError) as error:
        sys.stderr.write(f"fxstack: no report was written: {error}\n")
    else:
        sys.stderr.write(
            f"fxstack: the program {end_text(code) or 'ended'}; its report is made from its record: {index}\n"
        )


def _is_ours(file: str) -> bool:
    """Return whether a file belongs to this package or to ``runpy``, which run the program."""
    return file.startswith(str(Path(__file__).parents[1])) or "runpy" in file
