"""How commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(content: Any) -> None:
    """Print ``content`` as indented JSON."""
    sys.stdout.write(json.dumps(content, indent=2) + "\n")


def print_table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    """Print rows in columns; ``header`` may be empty strings."""
    table = Table(*header, box=None, show_header=any(header), pad_edge=False)
    for row in rows:
        table.add_row(*row)
    # Where the output is no terminal, lines stay whole for grep.
    console = Console(width=None if sys.stdout.isatty() else 200, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(table)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def print_records(
    records: Sequence[Any], header: tuple[str, ...], row: Callable[[Any], tuple[str, ...]], *, as_json: bool
) -> None:
    """Print records as JSON, or each as a row of a table."""
    if as_json:
        print_json([asdict(record) for record in records])
    else:
        print_table(header, [row(record) for record in records])


def tell(text: str) -> None:
    """Print a line to stderr: progress, and warnings."""
    Console(stderr=True, markup=False, highlight=False, soft_wrap=True).print(text)


def fail(text: str) -> typer.Exit:
    """Print an error to stderr and return the exception that ends the command with status 2."""
    tell(text)
    return typer.Exit(2)
