"""The command that shows, checks and clears the disk cache."""

import json

import pytest

from fxstack_inductor.__main__ import main
from fxstack_inductor.runtime.cache import ENTRY, LIBRARY, Cache


@pytest.fixture
def cache(tmp_path):
    cache = Cache(tmp_path, 1 << 30)
    cache.build("a" * 64, "int x;", lambda _, path: path.write_bytes(b"\x7fELF" * 1000))
    cache.build("b" * 64, "a compiled program, as JSON", lambda _, path: path.write_text("{}"))
    return cache


def run(cache, *command):
    return main(["cache", *command, "--dir", str(cache.root)])


def test_summary(cache, capsys):
    assert run(cache) == 0
    shown = capsys.readouterr().out
    assert "program: 1" in shown
    assert "kernels: 1, 4.2 kB" in shown


def test_list(cache, capsys):
    run(cache, "list")
    lines = capsys.readouterr().out.splitlines()
    assert sorted(line.split()[-2] for line in lines) == ["kernels", "program"]


def test_check_removes_what_is_damaged(cache, capsys):
    (cache.directory("a" * 64) / LIBRARY).write_bytes(b"evil")
    run(cache, "check")
    assert "1 intact, 1 damaged, 0 of another version" in capsys.readouterr().out
    assert [path.name for path in cache.entries()] == ["b" * 64]


def test_check_tells_entries_of_another_version_from_damaged_ones(cache, capsys):
    (cache.directory("a" * 64) / ENTRY).write_text('{"format": 1, "sha256": ""}')
    run(cache, "check")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("a: another version of fxstack wrote it")
    assert lines[1] == "1 intact, 0 damaged, 1 of another version"


@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("summary", {"folder", "bytes", "limit", "left_behind", "program", "kernels", "damaged"}),
        ("list", {"entries"}),
        ("check", {"intact", "damaged", "of another version"}),
        ("clear", {"removed", "bytes"}),
    ],
)
def test_each_command_as_json(cache, capsys, command, keys):
    assert run(cache, command, "--json") == 0
    assert json.loads(capsys.readouterr().out).keys() == keys


def test_clear(cache, capsys):
    run(cache, "clear")
    assert "removed 2 entries" in capsys.readouterr().out
    assert cache.entries() == []


def test_a_directory_that_is_none(tmp_path, capsys):
    assert main(["cache", "list", "--dir", str(tmp_path / "none")]) == 2
    assert "nothing has been kept there" in capsys.readouterr().err
