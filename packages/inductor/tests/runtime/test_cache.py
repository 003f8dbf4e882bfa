"""The disk cache: entries are whole or absent, whoever writes, whoever is killed."""

import errno
import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import time
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
import torch
from inductor_checks import trace

import fxstack_inductor as fi
from fxstack_inductor.private_files import NotPrivateError, opened, remove
from fxstack_inductor.runtime.cache import DAMAGED, ENTRY, GONE, INTACT, LIBRARY, OTHER_VERSION, Cache
from fxstack_inductor.runtime.toolchain import find_toolchain

BINARY = b"a library" * 1000


def write(source, output):
    output.write_bytes(BINARY)


def forbidden(source, output):
    raise AssertionError("the entry was there")


@pytest.fixture
def cache(tmp_path):
    return Cache(tmp_path, limit=1 << 30)


def test_second_build_finds_the_first(cache):
    assert cache.build("a" * 64, "source", write) == BINARY
    assert cache.build("a" * 64, "source", forbidden) == BINARY


def test_keys_tell_parts_apart():
    assert Cache.key("ab", "c") != Cache.key("a", "bc")


@pytest.mark.parametrize(
    "damage", ["truncate", "replace", "no_entry", "bad_entry", "deep", "no_library", "fifo"]
)
def test_damaged_entries_are_built_again(cache, damage):
    cache.build("b" * 64, "source", write)
    path = cache.directory("b" * 64) / LIBRARY
    entry = path.parent / ENTRY
    actions = {
        "truncate": lambda: path.write_bytes(BINARY[:10]),
        "replace": lambda: path.write_bytes(b"evil" * 100),
        "no_entry": entry.unlink,
        "bad_entry": lambda: entry.write_text("{"),
        "deep": lambda: entry.write_text("[" * 100_000),
        "no_library": path.unlink,
        "fifo": lambda: (path.unlink(), os.mkfifo(path)),
    }
    actions[damage]()
    assert cache.find("b" * 64) is None
    assert cache.build("b" * 64, "source", write) == BINARY


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
    assert Cache(Path(root), 1 << 30).build("e" * 64, "source", slow) == BINARY


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
    assert cache.find("e" * 64) == BINARY
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
    assert cache.build("f" * 64, "source", write) == BINARY


def _write_and_remove_forever(root):
    """Write, replace and remove the same few entries, as many processes do in a full cache."""

    def slow(source, output):
        for end in (10, len(BINARY)):
            output.write_bytes(BINARY[:end])

    cache = Cache(Path(root), limit=2 * len(BINARY))
    while True:
        for k in range(4):
            with suppress(FileNotFoundError):  # removed by another one before it could be read
                cache.build(f"{k}" * 64, "source", slow)
        cache.evict()
        remove(cache.directory("0" * 64))


@pytest.mark.alone
def test_processes_that_are_killed_at_any_moment_damage_nothing(tmp_path):
    context = multiprocessing.get_context("fork")
    cache, rng = Cache(tmp_path, 1 << 30), random.Random(0)
    for _ in range(30):
        workers = [context.Process(target=_write_and_remove_forever, args=(tmp_path,)) for _ in range(3)]
        for worker in workers:
            worker.start()
        time.sleep(0.005 + 0.02 * rng.random())
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)
            worker.join()
        assert {cache.state(entry.name) for entry in cache.entries()} <= {INTACT}
    left = [path for path in tmp_path.rglob(".*ing-*") if path.is_dir()]
    assert sorted(cache.left_behind(0)) == sorted(left)
    for path in left:
        os.utime(path, (0, 0))
    cache.evict()
    assert cache.left_behind(0) == []
    assert not any(path.exists() for path in left)


def test_states_of_entries(cache):
    for k in "0123":
        cache.build(k * 64, "source", write)
    record = cache.directory("1" * 64) / ENTRY
    record.write_text(json.dumps({"format": 1, "sha256": json.loads(record.read_text())["sha256"]}))
    (cache.directory("2" * 64) / LIBRARY).unlink()
    remove(cache.directory("3" * 64))
    assert [cache.state(k * 64) for k in "0123"] == [INTACT, OTHER_VERSION, DAMAGED, GONE]


def test_too_many_open_files_remove_no_entry(cache, monkeypatch):
    cache.build("a" * 64, "source", write)

    @contextmanager
    def full(name, *arguments, **options):
        if name == LIBRARY:
            raise OSError(errno.EMFILE, "Too many open files")
        with opened(name, *arguments, **options) as descriptor:
            yield descriptor

    with monkeypatch.context() as patch:
        patch.setattr("fxstack_inductor.runtime.cache.opened", full)
        for use in (cache.find, cache.state):
            with pytest.raises(OSError, match="Too many open files"):
                use("a" * 64)
    assert cache.find("a" * 64) == BINARY


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
    cache.build("a" * 64, "source", write)

    def refuse(path):
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr("os.utime", refuse)
    assert cache.find("a" * 64) == BINARY


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


def test_an_entry_under_the_name_of_another_is_built_again(cache):
    """A bad backup: also an entry that is whole."""
    cache.build("a" * 64, "source", write)
    cache.build("b" * 64, "other", lambda _, output: output.write_bytes(b"other"))
    shutil.rmtree(cache.directory("b" * 64))
    shutil.copytree(cache.directory("a" * 64), cache.directory("b" * 64))
    assert cache.state("b" * 64) == DAMAGED
    assert cache.find("b" * 64) is None
    assert cache.find("a" * 64) == BINARY
    assert not cache.put("c" * 64, cache.files("a" * 64))


@pytest.mark.parametrize(
    "name", ["", "aa", "aa/" + "a" * 64, f"aa/{'a' * 64}/{LIBRARY}", f"aa/{'a' * 64}/{ENTRY}"]
)
@pytest.mark.parametrize("mode", [0o777, 0o720, 0o702])
def test_nothing_is_used_that_others_can_write(cache, name, mode):
    cache.build("a" * 64, "source", write)
    (cache.root / name).chmod(mode)
    try:
        assert cache.find("a" * 64) is None
    except NotPrivateError as error:
        assert name in {"", "aa"}
        assert re.search(f"other users can write .*{name}, mode {mode:o}: run chmod go-w", str(error))


@pytest.mark.parametrize("name", ["", "aa", "aa/" + "a" * 64, f"aa/{'a' * 64}/{LIBRARY}"])
def test_nothing_is_used_that_belongs_to_another_user(cache, name, monkeypatch):
    cache.build("a" * 64, "source", write)
    place, real = (cache.root / name).stat().st_ino, os.fstat

    def fstat(descriptor):
        found = real(descriptor)
        return os.stat_result((*found[:4], 12345, *found[5:])) if found.st_ino == place else found

    monkeypatch.setattr("os.fstat", fstat)
    with (
        pytest.raises(NotPrivateError, match="belongs to another user, number 12345")
        if len(name) < 3
        else nullcontext()
    ):
        assert cache.find("a" * 64) is None


def test_what_umask_permits_is_not_used(cache):
    before = os.umask(0)
    try:
        cache.build("a" * 64, "source", write)
    finally:
        os.umask(before)
    assert cache.find("a" * 64) == BINARY


LINKS = ["zz", "ab", ".writing-x", "aa/" + "a" * 64, "aa/other"]


@pytest.mark.parametrize("action", ["clear", "evict", "find", "build"])
@pytest.mark.parametrize("name", LINKS)
def test_links_are_never_followed(tmp_path, name, action):
    cache, victim = Cache(tmp_path / "cache", 0), tmp_path / "victim"
    for inner in ("ab" + "a" * 62, "a" * 64):
        (victim / inner).mkdir(parents=True)
        (victim / inner / "precious").write_text("data")
    os.utime(victim, (0, 0))
    link = cache.root / name
    link.parent.mkdir(mode=0o700, parents=True)
    link.symlink_to(victim)
    keys = ["ab" + "a" * 62, "a" * 64]
    actions = {
        "clear": cache.clear,
        "evict": cache.evict,
        "find": lambda: [cache.find(key) for key in keys],
        "build": lambda: [cache.build(key, "source", write) for key in keys],
    }
    with suppress(OSError):
        actions[action]()
    assert len([*victim.rglob("precious")]) == 2
    assert len([*victim.rglob("*")]) == 4, "nothing is written there"


def test_only_keys_are_removed(cache):
    cache.build("a" * 64, "source", write)
    for name in ("aa/notes", "my", "ab/" + "c" * 64, "aa/" + "a" * 63):
        (cache.root / name).mkdir(parents=True)
    cache.clear()
    left = {path.name for path in cache.root.rglob("*") if not path.name.startswith(".")}
    assert left == {"aa", "ab", "my", "notes", "c" * 64, "a" * 63}


def test_libraries_of_one_descriptor_are_different(cache, tmp_path):
    """The dynamic loader takes an equal name for an equal library."""
    found = []
    for value in range(5):
        source = f"int value(void) {{ return {value}; }}"
        toolchain = find_toolchain(fi.InductorOptions())
        cache.build(f"{value}" * 64, source, toolchain.compile)
        found.append(cache.load(f"{value}" * 64))
    assert [library.value() for library in found] == [*range(5)]
