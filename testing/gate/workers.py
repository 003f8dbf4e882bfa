"""Workers of pytest-xdist: caches of their own, tests that run while no other test does, and how they end.

A test with the mark ``alone`` counts threads, processes or memory, or needs all cores. The other workers wait
while it runs.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

EXIT_SECONDS = 120
"""Seconds that a worker may take to end after its last test."""
CACHES = {"XDG_CACHE_HOME": "cache", "TRITON_CACHE_DIR": "triton", "TORCHINDUCTOR_CACHE_DIR": "torch"}
"""Environment variables that name folders of caches, and the folders below ``FXSTACK_TEST_CACHES``."""


def separate_caches() -> None:
    """Give this worker its own caches, before any package reads the environment."""
    folder, worker = os.environ.get("FXSTACK_TEST_CACHES"), os.environ.get("PYTEST_XDIST_WORKER")
    if folder and worker:
        os.environ.update({name: str(Path(folder, worker, part)) for name, part in CACHES.items()})


separate_caches()


class Turnstile:
    """A lock between processes: many may pass together, or one alone.

    Who waits to be alone holds the first file's lock, so that no further process passes meanwhile.
    """

    def __init__(self, run: str) -> None:
        folder = Path(tempfile.gettempdir())
        self.entrance, self.room = (
            (folder / f"fxstack-tests-{run}-{part}.lock").open("w") for part in ("entrance", "room")
        )

    @contextmanager
    def passing(self, *, alone: bool) -> Iterator[None]:
        with _locked(self.entrance, fcntl.LOCK_EX):
            fcntl.flock(self.room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self.room, fcntl.LOCK_UN)


@contextmanager
def _locked(file: IO[str], kind: int) -> Iterator[None]:
    fcntl.flock(file, kind)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


TURNSTILE = pytest.StashKey[Turnstile]()
WORKERS = pytest.StashKey[list[Any]]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Remember the process of each worker, and give it time to end: xdist kills workers after ten seconds."""
    node.nodemanager.EXIT_TIMEOUT = EXIT_SECONDS
    node.config.stash.setdefault(WORKERS, []).append(node.gateway)


@pytest.hookimpl(wrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Fail the run if a worker did not end by itself: xdist does not look at what happens after the last test."""
    yield
    for gateway in session.config.stash.get(WORKERS, []):
        process = gateway._io.popen
        try:
            status = process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            status = f"no end within {EXIT_SECONDS} s"
        if status != 0:
            sys.stderr.write(f"\n{gateway.id} ended with: {status}\n")
            session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


def pytest_configure(config: pytest.Config) -> None:
    if worker := getattr(config, "workerinput", None):
        config.stash[TURNSTILE] = Turnstile(worker["testrunuid"])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    turnstile = item.config.stash.get(TURNSTILE, None)
    if turnstile is None:
        return (yield)
    with turnstile.passing(alone=item.get_closest_marker("alone") is not None):
        return (yield)
