"""What the sweeps over whole families of cases have in common: options, processes, and a line for each difference."""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import re
import time
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

LIMIT = 900
"""Seconds after which a case is left, as one that ended the process is."""


def sweep(doc: str | None, cases: Sequence[Any], differences: Callable[..., str | None]) -> int:
    """Run all ``cases``, each the arguments of ``differences`` before the backend; 1 if one differs.

    The cases run in processes of ``--chunk`` cases, so that one that ends its process is a difference.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--only", default="", help="pattern of the case's text")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--chunk", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    found = [case for case in cases if re.search(options.only, str(case))]
    chosen = found[:: max(60, len(found) // 20) if options.dry else options.every]
    start, run, different, refused = time.time(), 0, 0, 0
    while run < len(chosen) and time.time() - start < options.seconds:
        for difference in _isolated(chosen[run : run + options.chunk], differences, options.backend):
            if difference is not None:
                is_refused = difference.startswith("runs in eager:")
                refused, different = refused + is_refused, different + (not is_refused)
                print(f"{chosen[run]}: {difference}", flush=True)
            run += 1
    print(
        f"{run} of {len(chosen)} cases, {different} differences, {refused} in eager, {time.time() - start:.0f} s"
    )
    return 1 if different else 0


def _isolated(
    cases: Sequence[Any], differences: Callable[..., str | None], backend: str
) -> Iterator[str | None]:
    """The differences of ``cases`` up to the first that ends the process."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    arguments = (cases, differences, backend, sender)
    process = multiprocessing.get_context("fork").Process(target=_run, args=arguments)
    process.start()
    sender.close()
    try:
        for _ in cases:
            if not receiver.poll(LIMIT):
                yield f"not done after {LIMIT} s"
                return
            yield receiver.recv()
    except EOFError:
        process.join()
        yield f"the process ended with status {process.exitcode}"
    finally:
        process.kill()
        process.join()


def _run(cases: Sequence[Any], differences: Callable[..., str | None], backend: str, results: Any) -> None:
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    for case in cases:
        try:
            found = differences(*case, backend)
        except Exception as error:  # a defect of the helper, or of torch's databases
            found = f"raised {type(error).__name__}: {error}"
        results.send(found)
