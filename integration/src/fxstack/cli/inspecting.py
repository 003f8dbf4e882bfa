"""``fxstack explain``, ``report``, ``passes`` and ``config``: look into what was compiled, and into the compiler."""

from __future__ import annotations

import atexit
import sys
from dataclasses import asdict
from typing import Annotated, TextIO

import typer

from fxstack.cli.output import Json, fail, print_json, print_table
from fxstack.cli.run import run_program
from fxstack.debug.passes import all_passes, nearest_text
from fxstack.log import LISTENERS
from fxstack.report import write_folder
from fxstack.report.figures import Figures, where
from fxstack.torch_interop.described_settings import described_settings
from fxstack.trace import Event, Session, TraceError
from fxstack.trace.listener import TraceListener
from fxstack.trace.records import Body

PROGRAM = {"allow_extra_args": True, "allow_interspersed_args": False}
"""Settings of commands that run a program: what follows the script belongs to the program."""


def explain(
    context: typer.Context,
    script: Annotated[str, typer.Argument(help="A Python file, or with -m the name of a module.")],
    *,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module.")] = False,
    as_json: Json = False,
) -> None:
    """Run a program on fxstack; say in plain words what was compiled, what breaks graphs, and what to do."""
    bodies: list[Body] = []
    LISTENERS.append(TraceListener(lambda: True, bodies.append, lambda: True))
    # The program may end in any way; what is known then is printed.
    atexit.register(_explain, bodies, sys.stdout, as_json=as_json)
    if as_json:
        sys.stdout = sys.stderr  # what the program prints would stand in front of the JSON
    run_program(script, context.args, module=module, debug="", folder="", report="")


def _explain(bodies: list[Body], out: TextIO, *, as_json: bool) -> None:
    sys.stdout = out
    figures = Figures(Session(tuple(Event(0.0, "", body) for body in bodies)))
    if as_json:
        breaks = [{"at": where(record), "times": count, **asdict(record)} for record, count in figures.breaks]
        print_json(
            {
                "sentences": figures.sentences(),
                "breaks": breaks,
                "recompilations": [asdict(again) for again in figures.recompilations],
                "plain": figures.plain,
                "seconds": figures.seconds,
            }
        )
        return
    print_table(("",), [(sentence,) for sentence in figures.sentences()])


def report(
    folder: Annotated[str, typer.Argument(help="The folder of FXSTACK_REPORT or FXSTACK_TRACE.")],
    *,
    as_json: Json = False,
) -> None:
    """Write HTML pages from the records of a job, also of one that was killed or still runs."""
    try:
        index = write_folder(folder)
    except (TraceError, OSError) as error:
        raise fail(f"fxstack report: {error}") from None
    pages = sorted(str(page) for page in index.parent.glob("process-*.html"))
    if as_json:
        print_json({"index": str(index), "pages": pages})
    else:
        print_table(("",), [(str(index),)])


def passes(
    name: Annotated[str, typer.Argument(help="A part of a stage or name; all passes if omitted.")] = "",
    *,
    examples: Annotated[bool, typer.Option("--examples", help="Print the example of each pass.")] = False,
    as_json: Json = False,
) -> None:
    """List the passes of all stages in order: what each does, and the file of its code."""
    found = [known for known in all_passes() if name in f"{known.stage}:{known.name}"]
    if not found:
        near = nearest_text(name, [f"{known.stage}:{known.name}" for known in all_passes()], "fxstack passes")
        raise fail(f"no pass has {name!r} in its name. {near}")
    if as_json:
        print_json([asdict(known) for known in found])
    elif examples:
        for known in found:
            print_table(("",), [(f"{known.stage}:{known.name}  {known.sentence}",), (known.example,), ("",)])
    else:
        rows = [
            (k.stage, k.name, k.sentence, f"{k.file.partition('/src/')[2] or k.file}:{k.line}") for k in found
        ]
        print_table(("stage", "pass", "what it does", "file"), rows)


def config(
    name: Annotated[str, typer.Argument(help="A part of a name; all settings if omitted.")] = "",
    *,
    as_json: Json = False,
) -> None:
    """List the settings of torch's compiler (torch._dynamo.config and others), and what they do here."""
    found = [known for known in described_settings() if name in f"{known.module}.{known.name}"]
    if not found:
        near = nearest_text(name, [known.name for known in described_settings()], "fxstack config")
        raise fail(f"no setting has {name!r} in its name. {near}")
    if as_json:
        print_json([asdict(known) for known in found])
    else:
        print_table(("setting", "here"), [(f"{k.module}.{k.name}", k.text) for k in found])


def add_commands(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command(context_settings=PROGRAM)(explain)
    for command in (report, passes, config):
        app.command()(command)
