"""``python -m fxstack_inductor cache [list|check|clear] [--dir FOLDER]``: show, check or clear the cache.

Kernels and whole compiled programs are in one directory; ``clear`` removes both.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fxstack_inductor.options import options_from_environment
from fxstack_inductor.private_files import remove
from fxstack_inductor.runtime.cache import LIBRARY, SOURCE, Cache, entry_size

PROGRAM = "program"
KERNELS = "kernels"
DAMAGED = "damaged"


def kind(entry: Path) -> str:
    """Return the kind of an entry: a whole compiled program is JSON, other entries are kernel libraries."""
    try:
        with (entry / LIBRARY).open("rb") as file:
            return PROGRAM if file.read(1) == b"{" else KERNELS
    except OSError:
        return DAMAGED


def summary(cache: Cache) -> Iterator[str]:
    """Yield the number and size of entries of each kind."""
    yield f"{cache.root}: {readable(cache.size())} of at most {readable(cache.limit)}"
    for name in (PROGRAM, KERNELS, DAMAGED):
        found = [entry for entry in cache.entries() if kind(entry) == name]
        if found:
            yield f"  {name}: {len(found)}, {readable(sum(map(entry_size, found)))}"
    if left := cache.left_behind():
        yield f"  left behind by processes that were killed: {len(left)}"


def listing(cache: Cache) -> Iterator[str]:
    """Yield a line for every entry, most recently used first."""
    for entry in sorted(cache.entries(), key=lambda path: -path.stat().st_mtime):
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.stat().st_mtime))
        yield f"{used}  {readable(entry_size(entry)):>8}  {kind(entry):8} {entry / SOURCE}"


def check(cache: Cache) -> Iterator[str]:
    """Remove damaged entries, as the next look-up would."""
    damaged = [entry for entry in cache.entries() if not cache.is_intact(entry.name)]
    for entry in damaged:
        remove(entry)
        yield f"removed {entry}: its files do not match what was written"
    yield f"{len(cache.entries())} intact, {len(damaged)} damaged"


def clear(cache: Cache) -> Iterator[str]:
    count, freed = len(cache.entries()), cache.size()
    cache.clear()
    yield f"removed {count} entries, {readable(freed)}"


COMMANDS = {"summary": summary, "list": listing, "check": check, "clear": clear}


def readable(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 2 if the cache directory does not exist."""
    options = options_from_environment()
    parser = argparse.ArgumentParser("python -m fxstack_inductor", description=__doc__)
    parser.add_argument("what", choices=["cache"])
    parser.add_argument("command", nargs="?", default="summary", choices=COMMANDS)
    parser.add_argument("--dir", type=Path, default=Path(options.cache_dir))
    chosen = parser.parse_args(arguments)
    if not chosen.dir.is_dir():
        sys.stderr.write(f"{chosen.dir} is not a directory: nothing has been kept there\n")
        return 2
    for line in COMMANDS[chosen.command](Cache(chosen.dir, options.cache_limit)):
        sys.stdout.write(line + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
