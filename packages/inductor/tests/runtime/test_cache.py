"""The disk cache: entries are whole or absent, whoever writes, whoever is killed."""

import hashlib
import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from inductor_checks import trace

import fxstack_inductor as fi
from fxstack_inductor.runtime.cache import ENTRY, LIBRARY, Cache

BINARY = b"a library" * 1000


def write(source, output):
    output.write_bytes(BINARY)


def forbidden(source, output):
    raise AssertionError("the entry was there")


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path, limit=1 << 30)


def test_second_build_finds_the_first(cache):
    path = cache.build("a" * 64, "source", write)
    assert path.read_bytes() == BINARY
    assert cache.build("a" * 64, "source", forbidden) == path


def test_keys_tell_parts_apart():
    assert Cache.key("ab", "c") != Cache.key("a", "bc")


@pytest.mark.parametrize("damage", ["truncate", "replace", "no_entry", "bad_entry", "no_library"])
def test_damaged_entries_are_built_again(cache, damage):
    path = cache.build("b" * 64, "source", write)
    entry = path.parent / ENTRY
    actions = {
        "truncate": lambda: path.write_bytes(BINARY[:10]),
        "replace": lambda: path.write_bytes(b"evil" * 100),
        "no_entry": entry.unlink,
        "bad_entry": lambda: entry.write_text("{"),
        "no_library": path.unlink,
    }
    actions[damage]()
    assert cache.find("b" * 64) is None
    assert cache.build("b" * 64, "source", write).read_bytes() == BINARY


def test_a_failed_build_leaves_nothing(cache):
    def fail(source, output):
        output.write_bytes(b"half")
        raise RuntimeError("compiler crashed")

    with pytest.raises(RuntimeError, match="compiler crashed"):
        cache.build("c" * 64, "source", fail)
    assert cache.entries() == []
    assert list(cache.root.glob(".writing-*")) == []


def test_least_recently_used_go_first(tmp_path):
    cache = Cache(tmp_path, limit=4 * 10_000)
    for k in range(4):
        cache.build(f"{k}" * 64, "source", write)
        os.utime(cache.directory(f"{k}" * 64), (k, k))
    cache.find("0" * 64)
    cache.build("9" * 64, "source", write)
    left = {path.name[0] for path in cache.entries()}
    assert {"0", "9"} <= left
    assert "1" not in left
    assert cache.size() <= cache.limit


def test_what_to_evict_is_looked_for_once_a_minute_or_a_twentieth(tmp_path, monkeypatch):
    looked = []
    monkeypatch.setattr(Cache, "evict", lambda self: looked.append(self.limit))
    large, small = Cache(tmp_path, 1 << 30), Cache(tmp_path, 1)
    for k in range(3):
        large.build(Cache.key("large", str(k)), "", write)
    assert looked == [1 << 30]
    small.build(Cache.key("small"), "", write)
    assert looked == [1 << 30, 1]
    os.utime(tmp_path / ".checked", (0, 0))
    large.build(Cache.key("later"), "", write)
    assert looked == [1 << 30, 1, 1 << 30]


def test_clear(cache):
    cache.build("d" * 64, "source", write)
    cache.clear()
    assert cache.entries() == []


def _build_slowly(root, barrier):
    def slow(source, output):
        output.write_bytes(BINARY[:100])
        time.sleep(0.05)
        output.write_bytes(BINARY)

    barrier.wait()
    path = Cache(Path(root), 1 << 30).build("e" * 64, "source", slow)
    assert path.read_bytes() == BINARY


@pytest.mark.alone
def test_concurrent_writers_agree(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(4)
    workers = [context.Process(target=_build_slowly, args=(tmp_path, barrier)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 4
    cache = Cache(tmp_path, 1 << 30)
    assert cache.find("e" * 64).read_bytes() == BINARY
    assert len(cache.entries()) == 1


def _build_forever(root, started):
    def hang(source, output):
        output.write_bytes(b"half")
        started.set()
        time.sleep(60)

    Cache(Path(root), 1 << 30).build("f" * 64, "source", hang)


@pytest.mark.alone
def test_a_killed_writer_does_no_harm(tmp_path):
    context = multiprocessing.get_context("fork")
    started = context.Event()
    worker = context.Process(target=_build_forever, args=(tmp_path, started))
    worker.start()
    assert started.wait(120)
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    cache = Cache(tmp_path, 1 << 30)
    assert cache.find("f" * 64) is None
    assert cache.build("f" * 64, "source", write).read_bytes() == BINARY


def test_what_killed_writers_leave_goes_after_an_hour(tmp_path):
    cache = Cache(tmp_path, 1 << 30)
    old, new = tmp_path / ".writing-old", tmp_path / ".writing-new"
    for folder in (old, new):
        folder.mkdir()
    os.utime(old, (0, 0))
    cache.evict()
    assert (old.exists(), new.exists()) == (False, True)
    cache.clear()
    assert not new.exists()


def test_what_cannot_be_touched_is_found(cache, monkeypatch):
    path = cache.build("a" * 64, "source", write)

    def refuse(path):
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr("os.utime", refuse)
    assert cache.find("a" * 64) == path


def test_compiled_graphs_use_it(tmp_path):
    x = torch.randn(10)
    graph = trace(lambda x: x.sin() + 1, x)
    options = fi.InductorOptions(cache_dir=tmp_path, optimization=1)
    fi.compile_graph(graph, (x,), options)
    (entry,) = Cache(tmp_path, 1).entries()
    stamp = (entry / LIBRARY).stat().st_mtime_ns
    torch.testing.assert_close(fi.compile_graph(graph, (x,), options)(x)[0], x.sin() + 1)
    assert (entry / LIBRARY).stat().st_mtime_ns == stamp
    recorded = json.loads((entry / ENTRY).read_text())["sha256"]
    assert recorded == hashlib.sha256((entry / LIBRARY).read_bytes()).hexdigest()
