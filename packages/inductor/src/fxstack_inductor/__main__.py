"""``python -m fxstack_inductor cache [summary|list|check|clear] [--dir FOLDER] [--json]``: manage the cache on disk.

Kernels and whole compiled programs are in one directory; ``clear`` removes both.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fxstack_inductor.cost.quantities import bytes_text
from fxstack_inductor.options import options_from_environment
from fxstack_inductor.private_files import remove
from fxstack_inductor.runtime.cache import (
    DAMAGED,
    GONE,
    INTACT,
    LIBRARY,
    OTHER_VERSION,
    SOURCE,
    Cache,
    entry_size,
    modified,
)

PROGRAM = "program"
KERNELS = "kernels"


def kind(entry: Path) -> str:
    """Return the kind of an entry: a whole compiled program is JSON, other entries are kernel libraries."""
    try:
        with (entry / LIBRARY).open("rb") as file:
            return PROGRAM if file.read(1) == b"{" else KERNELS
    except OSError:
        return DAMAGED if entry.exists() else GONE


def summary(cache: Cache, data: dict[str, Any]) -> Iterator[str]:
    """Show the number and size of entries (the default)"""
    sizes: dict[str, list[int]] = {name: [] for name in (PROGRAM, KERNELS, DAMAGED, GONE)}
    for entry in cache.entries():
        sizes[kind(entry)].append(entry_size(entry))
    size, left = sum(map(sum, sizes.values())), len(cache.left_behind())
    data |= {"folder": str(cache.root), "bytes": size, "limit": cache.limit, "left_behind": left}
    yield f"{cache.root}: {bytes_text(size)} of at most {bytes_text(cache.limit)}"
    for name in (PROGRAM, KERNELS, DAMAGED):
        data[name] = {"entries": len(sizes[name]), "bytes": sum(sizes[name])}
        if sizes[name]:
            yield f"  {name}: {len(sizes[name])}, {bytes_text(sum(sizes[name]))}"
    if left:
        yield f"  left behind by processes that were killed: {left}"


def listing(cache: Cache, data: dict[str, Any]) -> Iterator[str]:
    """Show each entry, most recently used first"""
    data["entries"] = []
    for used, entry in sorted(((modified(entry), entry) for entry in cache.entries()), reverse=True):
        size, of, source = entry_size(entry), kind(entry), entry / SOURCE
        data["entries"].append({"used": used, "bytes": size, "kind": of, "source": str(source)})
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(used))
        yield f"{day}  {bytes_text(size):>8}  {of:8} {source}"


def check(cache: Cache, data: dict[str, Any]) -> Iterator[str]:
    """Remove damaged entries, and those of another version"""
    data |= {INTACT: 0, DAMAGED: [], OTHER_VERSION: []}
    for entry in cache.entries():
        state = cache.state(entry.name)
        if state == INTACT:
            data[INTACT] += 1
        elif state != GONE:
            remove(entry)
            data[state].append(str(entry))
            yield f"removed {entry}: {_WHY[state]}"
    counts = (f"{len(data[name])} {name}" for name in (DAMAGED, OTHER_VERSION))
    yield ", ".join([f"{data[INTACT]} {INTACT}", *counts])


def clear(cache: Cache, data: dict[str, Any]) -> Iterator[str]:
    """Remove all entries"""
    data |= {"removed": len(cache.entries()), "bytes": cache.size()}
    cache.clear()
    yield f"removed {data['removed']} entries, {bytes_text(data['bytes'])}"


_WHY = {
    DAMAGED: "its files do not match what was written",
    OTHER_VERSION: "another version of fxstack wrote it",
}
COMMANDS = {"summary": summary, "list": listing, "check": check, "clear": clear}
"""Command -> generator of its output lines. The generator also fills the dict ``data`` for ``--json``.

Its docstring is the help.
"""
SENTENCES = "; ".join(f"{name}: {(command.__doc__ or '').lower()}" for name, command in COMMANDS.items())


def manage(command: str, folder: Path | None = None, *, as_json: bool = False) -> int:
    """Run one command of ``COMMANDS`` and return the exit status: 2 if the cache directory does not exist, else 0.

    ``folder``: None for the cache directory of the options.
    """
    options = options_from_environment()
    root = Path(options.cache_dir) if folder is None else folder
    if not root.is_dir():
        sys.stderr.write(f"{root} is not a directory: nothing has been kept there\n")
        return 2
    data: dict[str, Any] = {}
    for line in COMMANDS[command](Cache(root, options.cache_limit), data):
        if not as_json:
            sys.stdout.write(f"{line}\n")
    if as_json:
        sys.stdout.write(json.dumps(data, indent=2) + "\n")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (``arguments``; None: of this process) and return the exit status."""
    parser = argparse.ArgumentParser("python -m fxstack_inductor", description=__doc__)
    parser.add_argument("what", choices=["cache"])
    parser.add_argument("command", nargs="?", default="summary", choices=COMMANDS, help=SENTENCES)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(arguments)
    return manage(chosen.command, chosen.dir, as_json=chosen.json)


if __name__ == "__main__":
    sys.exit(main())
