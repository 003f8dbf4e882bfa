"""Commands for programs that run on fxstack.

Exit status: 0 success, 1 a finding of ``doctor`` or an error of the program that ``run`` runs, 2 wrong usage.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from fxstack.cli.doctor import findings
from fxstack.cli.inspecting import add_commands
from fxstack.cli.options import describe_options
from fxstack.cli.output import Json, fail, print_json, print_table
from fxstack.cli.run import run_program
from fxstack.debug.artefacts import ARTEFACTS
from fxstack_inductor.__main__ import main as manage_cache

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False, rich_markup_mode=None)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def run(
    context: typer.Context,
    script: Annotated[str, typer.Argument(help="A Python file, or with -m the name of a module.")],
    *,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module.")] = False,
    debug: Annotated[
        str, typer.Option(help="Artefacts to print; 'fxstack artefacts' lists them.")
    ] = "summary",
    folder: Annotated[str, typer.Option(help="Write all artefacts as files into this folder.")] = "",
    report: Annotated[str, typer.Option(help="Write an HTML report into this folder.")] = "",
) -> None:
    """Run an unedited program, with its own arguments, on fxstack; print a table at the end."""
    run_program(script, context.args, module=module, debug=debug, folder=folder, report=report)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check Python, torch, C compiler, OpenMP, caches, GPU and Triton; say how to mend what is wrong."""
    found = findings()
    if as_json:
        print_json([asdict(finding) for finding in found])
    else:
        print_table(
            ("", "", ""), [("ok" if f.good else "PROBLEM", f.name, f"{f.text}{_fix(f.fix)}") for f in found]
        )
    raise typer.Exit(0 if all(finding.good for finding in found) else 1)


@app.command()
def options(
    name: Annotated[str, typer.Argument(help="A part of a name; all options if omitted.")] = "",
    as_json: Json = False,
) -> None:
    """List what ``fxstack.compile(options={...})`` takes: stage, name, type, default, meaning."""
    found = [option for option in describe_options() if name in option.name]
    if not found:
        raise fail(f"no option has {name!r} in its name; 'fxstack options' lists all")
    if as_json:
        print_json([asdict(option) for option in found])
    else:
        rows = [(o.stage, o.name, f"{o.type} = {o.default}", o.meaning) for o in found]
        print_table(("stage", "option", "type and default", "meaning"), rows)


@app.command()
def artefacts(as_json: Json = False) -> None:
    """List what ``FXSTACK_DEBUG`` and ``run --debug`` show."""
    if as_json:
        print_json([asdict(artefact) for artefact in ARTEFACTS])
        return
    print_table(("name", "what it shows"), [(artefact.name, artefact.sentence) for artefact in ARTEFACTS])


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def cache(context: typer.Context) -> None:
    """Show the cache on disk; also 'list', 'check' (remove damaged entries), 'clear', each with --dir FOLDER."""
    raise typer.Exit(manage_cache(["cache", *context.args]))


def _fix(fix: str) -> str:
    return f"\nfix: {fix}" if fix else ""


add_commands(app)


def main() -> None:
    app(prog_name="fxstack")
