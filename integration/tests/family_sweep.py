"""What the sweeps over whole families of cases have in common: options, and a line for each difference."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def sweep(doc: str | None, cases: Sequence[Any], differences: Callable[..., str | None]) -> int:
    """Run all ``cases``, each the arguments of ``differences`` before the backend; 1 if one differs."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    chosen = cases[::60] if options.dry else cases
    different = 0
    for case in chosen:
        found = differences(*case, options.backend)
        if found is not None:
            different += 1
            print(f"{case}: {found}", flush=True)
    print(f"{len(chosen)} cases, {different} differences")
    return 1 if different else 0
