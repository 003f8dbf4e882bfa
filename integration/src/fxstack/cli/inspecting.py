"""``fxstack explain``, ``report``, ``passes``, ``rule`` and ``config``: look into what was compiled, and into the compiler."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fxstack.cli.options import describe_settings
from fxstack.cli.output import Json, fail, print_json, print_records, print_table
from fxstack.cli.run import check_script, go_on_in_child, run_program
from fxstack.debug.passes import PassRecord, all_passes, nearest_text
from fxstack.log import LISTENERS
from fxstack.report import write_folder
from fxstack.report.figures import Figures
from fxstack.torch_options import names_of_torch
from fxstack.trace import Session, TraceError, load_folder
from fxstack.trace.counts import where
from fxstack.trace.listener import TraceListener
from fxstack.trace.writer import TraceWriter
from fxstack_capture.calls.decisions.explaining import UnknownNameError
from fxstack_capture.calls.decisions.explaining import explain as explain_call

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
    check_script("explain", script, module=module)
    folder = tempfile.mkdtemp(prefix="fxstack-")
    go_on_in_child(partial(_explain, Path(folder), as_json))
    if as_json:
        os.dup2(2, 1)  # the program prints to stderr, so that stdout holds only the JSON
    LISTENERS.append(TraceListener(lambda: True, partial(TraceWriter().write, folder), lambda: True))
    run_program(script, context.args, module=module, debug="", folder="", report="")


def _explain(folder: Path, as_json: bool, _child: int, _code: int) -> None:
    """Print the record in ``folder`` as sentences or JSON, after the program has ended; remove the folder."""
    sessions = load_folder(folder) if any(folder.iterdir()) else [Session(())]
    shutil.rmtree(folder)
    figures = Figures(Session(tuple(event for session in sessions for event in session.events)))
    if as_json:
        counts = figures.counts
        counted = counts.breaks.most_common()
        breaks = [{"at": where(record), "times": count, **asdict(record)} for record, count in counted]
        print_json(
            {
                "sentences": figures.sentences(),
                "breaks": breaks,
                "recompilations": [asdict(recompilation) for recompilation in counts.recompilations],
                "plain": counts.plain,
                "seconds": counts.seconds,
            }
        )
        return
    print_table(("",), [(sentence,) for sentence in figures.sentences()])


def report(
    folder: Annotated[str, typer.Argument(help="The folder of FXSTACK_REPORT or FXSTACK_TRACE.")],
    *,
    as_json: Json = False,
) -> None:
    """Write HTML pages from the records of a job. The job may have been killed, or may still run."""
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
    matches = [record for record in all_passes() if name in f"{record.stage}:{record.name}"]
    if not matches:
        near = nearest_text(
            name, [f"{record.stage}:{record.name}" for record in all_passes()], "fxstack passes"
        )
        raise fail(f"no pass has {name!r} in its name. {near}")
    if examples and not as_json:
        for record in matches:
            print_table(
                ("",), [(f"{record.stage}:{record.name}  {record.sentence}",), (record.example,), ("",)]
            )
    else:
        print_records(matches, ("stage", "pass", "what it does", "file"), _pass, as_json=as_json)


def rule(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="torch.sin, len, str.join, aten.add.Tensor.")
    ],
    *,
    as_json: Json = False,
) -> None:
    """Say which rule of the tracer decides a call of a function, class, method or operator, and where it is."""
    sys.path.insert(0, str(Path.cwd()))  # as Python does for a script: names of the user's own modules
    answers, unknown = [], []
    for name in names:
        try:
            answers.append(explain_call(name))
        except UnknownNameError as error:
            unknown.append(str(error))
    if as_json:
        print_json([asdict(answer) for answer in answers])
    else:
        print_table(("",), [(answer.text(),) for answer in answers])
    if unknown:
        raise fail("\n".join(unknown))


def _pass(record: PassRecord) -> tuple[str, ...]:
    location = f"{record.file.partition('/src/')[2] or record.file}:{record.line}"
    return (record.stage, record.name, record.sentence, location)


def config(
    name: Annotated[str, typer.Argument(help="A part of a name; all settings if omitted.")] = "",
    *,
    as_json: Json = False,
) -> None:
    """List the settings of torch's compiler (torch._dynamo.config and others), and what they do here."""
    settings = describe_settings(names_of_torch())
    matches = [setting for setting in settings if name in f"{setting.module}.{setting.name}"]
    if not matches:
        near = nearest_text(name, [setting.name for setting in settings], "fxstack config")
        raise fail(f"no setting has {name!r} in its name. {near}")
    print_records(matches, ("setting", "here"), lambda k: (f"{k.module}.{k.name}", k.text), as_json=as_json)


def add_commands(app: typer.Typer) -> None:
    """Add the commands of this module to ``app``."""
    app.command(context_settings=PROGRAM)(explain)
    for command in (report, passes, rule, config):
        app.command()(command)
