"""Commands for programs that run on fxstack.

Exit status: 0 success; 1 a finding of doctor, a failed system of bench, or a script of minify; 2 wrong usage, or nothing
has the given name; 3 minify: no script; 4 minify: the program fails by itself. run and explain exit as the program does.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import torch
import typer

from fxstack.artifacts import export_cache, import_cache
from fxstack.cli.bench import Result, busy, compare
from fxstack.cli.doctor import Finding, findings
from fxstack.cli.inspecting import PROGRAM, add_commands
from fxstack.cli.options import describe_options
from fxstack.cli.output import Json, fail, print_json, print_records, print_table, tell
from fxstack.cli.run import check_script, run_program
from fxstack.debug.artefacts import ARTEFACTS, unknown_names
from fxstack.debug.passes import nearest_text
from fxstack.dropin.program import Program
from fxstack.minify.command import Minifier
from fxstack_inductor import options_from_environment
from fxstack_inductor.__main__ import COMMANDS, SENTENCES, manage
from fxstack_inductor.cost.quantities import bytes_text
from fxstack_inductor.runtime.cache import Cache

app = typer.Typer(
    help=__doc__,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _installed_version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def _version(*, value: bool) -> None:
    if value:
        names = (
            "fxstack",
            "fxstack-interchange",
            "fxstack-capture",
            "fxstack-functionalize",
            "fxstack-partition",
            "fxstack-inductor",
        )
        rows = [(name, _installed_version(name)) for name in names]
        print_table(
            ("", ""), [*rows, ("torch", str(torch.__version__)), ("Python", platform.python_version())]
        )
        raise typer.Exit


@app.callback(help=__doc__)
def _options(
    *,
    _show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the versions and exit.")
    ] = False,
) -> None: ...


@app.command(context_settings=PROGRAM)
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
    if unknown := unknown_names("--debug", debug):
        raise fail("\n".join(unknown))
    run_program(script, context.args, module=module, debug=debug, folder=folder, report=report)


@app.command(context_settings=PROGRAM)
def minify(
    context: typer.Context,
    script: Annotated[str, typer.Argument(help="A Python file, or with -m the name of a module.")],
    *,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module.")] = False,
    out: Annotated[Path, typer.Option(help="The script to write.")] = Path("fxstack_minified.py"),
    as_json: Json = False,
) -> None:
    """Run an unedited program, with its own arguments; reduce what is wrong on fxstack to a script that fails alone.

    SCRIPT may be a graph, NAME.case, that TORCHDYNAMO_REPRO_LEVEL=3 has written.
    """
    check_script("minify", script, module=module)
    arguments = tuple(context.args)
    minifier = Minifier(out, tell)
    is_graph = script.endswith(".case") and not module
    program = Program(script, arguments, module)
    verdict = (
        minifier.saved(Path(script))
        if is_graph
        else minifier.program(program.run, [script, *arguments], module=module)
    )
    if as_json:
        print_json(verdict.as_record())
    else:
        sys.stdout.write(str(verdict))
    raise typer.Exit(verdict.status)


@app.command(context_settings=PROGRAM)
def bench(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(help="A Python file, or MODULE:NAME of a model or of its factory.")
    ],
    *,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="An expression for an argument of the model; repeatable."),
    ] = None,
    steps: Annotated[int, typer.Option(help="Calls of a model.")] = 20,
    as_json: Json = False,
) -> None:
    """Run a program, with its own arguments, or a model in eager, by torch.compile and on fxstack; compare the times."""
    is_model = ":" in target and not Path(target).exists()
    if not is_model:
        check_script("bench", target, module=False)
    results = compare(target, [str(steps), *(inputs or ())] if is_model else context.args, tell)
    if warning := busy():
        tell(warning)
    header = ("", "first step s", "ms a step (quartiles)", "times as fast", "peak MiB", "steps")
    print_records(results, header, _row, as_json=as_json)
    raise typer.Exit(1 if any(result.error for result in results) else 0)


def _row(result: Result) -> tuple[str, ...]:
    """Return the cells of a system's row in the table of ``fxstack bench``: its times, or its error with a fix."""
    if result.error:
        lines = [f"FAILED: {result.error.strip().partition(chr(10))[0]}", *filter(None, [result.line])]
        return (result.system, "\n".join([*lines, f"fix: {result.fix}"]))
    low, median, high = (1e3 * seconds for seconds in (result.low, result.median, result.high))
    times = f"{median:.3g} ({low:.3g} to {high:.3g})"
    memory = f"{result.memory / 2**20:.0f}"
    return (result.system, f"{result.first:.2f}", times, f"{result.ratio:.2f}", memory, str(result.steps))


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check Python, torch, C compiler, OpenMP, caches, GPU and Triton; say how to mend what is wrong."""
    checks = findings()
    print_records(checks, ("", "", ""), _finding, as_json=as_json)
    raise typer.Exit(0 if all(finding.good for finding in checks) else 1)


@app.command()
def options(
    name: Annotated[str, typer.Argument(help="A part of a name; all options if omitted.")] = "",
    as_json: Json = False,
) -> None:
    """List what ``fxstack.compile(options={...})`` takes: stage, name, type, default, meaning."""
    matches = [option for option in describe_options() if name in option.name]
    if not matches:
        near = nearest_text(name, [option.name for option in describe_options()], "fxstack options")
        raise fail(f"no option has {name!r} in its name. {near}")
    header = ("stage", "option", "type and default", "meaning")
    row = lambda o: (o.stage, o.name, f"{o.type} = {o.default}", o.meaning)  # noqa: E731
    print_records(matches, header, row, as_json=as_json)


@app.command()
def artefacts(as_json: Json = False) -> None:
    """List what ``FXSTACK_DEBUG`` and ``run --debug`` show."""
    header = ("name", "what it shows")
    print_records(ARTEFACTS, header, lambda artefact: (artefact.name, artefact.sentence), as_json=as_json)


@app.command()
def cache(
    command: Annotated[
        str,
        typer.Argument(help=f"{SENTENCES}; export FILE, import FILE: carry all entries to another machine."),
    ] = "summary",
    file: Annotated[Path | None, typer.Argument(help="The file of export and import.")] = None,
    *,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="The folder, if it is not the usual one.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Show the cache of compiled programs and kernels on disk, list or check its entries, clear, export or import it."""
    if command in _CARRYING:
        _carry(command, file, folder, as_json=as_json)
        return
    if command not in COMMANDS:
        raise fail(f"fxstack cache has no command {command!r}; it has {', '.join([*COMMANDS, *_CARRYING])}")
    raise typer.Exit(manage(command, folder, as_json=as_json))


_CARRYING = {
    "export": (export_cache, "wrote {} entries, {}, to {}"),
    "import": (import_cache, "added {} entries, {}, from {}"),
}


def _carry(command: str, file: Path | None, folder: Path | None, *, as_json: bool) -> None:
    """Run ``fxstack cache export`` or ``import``: move entries between the cache and ``file``."""
    if file is None:
        raise fail(f"fxstack cache {command} needs a file: fxstack cache {command} kernels.zip")
    options = options_from_environment()
    run_command, text = _CARRYING[command]
    try:
        info = run_command(file, Cache(folder or Path(options.cache_dir), options.cache_limit))
    except (OSError, ValueError) as error:
        raise fail(f"fxstack cache {command} {file}: {error}") from error
    if as_json:
        print_json(asdict(info))
    else:
        sys.stdout.write(text.format(len(info.keys), bytes_text(info.size), file) + "\n")


def _finding(finding: Finding) -> tuple[str, ...]:
    fix = f"\nfix: {finding.fix}" if finding.fix else ""
    return ("ok" if finding.good else "PROBLEM", finding.name, f"{finding.text}{fix}")


add_commands(app)


def main() -> None:
    app(prog_name="fxstack")
