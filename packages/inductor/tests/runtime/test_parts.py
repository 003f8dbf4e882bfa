"""Files in parts: each part is complete, and all together are the file."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from inductor_checks import FAST, check

from fxstack_inductor.errors import CompilerFailedError
from fxstack_inductor.runtime import parts, toolchain
from fxstack_inductor.runtime.parts import LATER_PART, MAX_PARTS, PART, PART_CHARACTERS, in_parts, parts_of
from fxstack_inductor.runtime.toolchain import find_toolchain

UNCACHED = dataclasses.replace(FAST, use_cache=False)
PIECES = st.lists(st.integers(1, 2 * PART_CHARACTERS).map(lambda n: "k" * n), max_size=2 * MAX_PARTS)


@given(PIECES)
def test_parts_hold_every_piece_behind_the_head(pieces):
    text = in_parts("head;", pieces)
    found = parts_of(text)
    bodies = [part.removeprefix(LATER_PART).removeprefix("head;") for part in found]
    assert len(found) == 1 or sum(part.startswith(LATER_PART) for part in found) == len(found) - 1
    assert sum(body.count("k") for body in bodies) == sum(map(len, pieces))
    assert len(found) <= MAX_PARTS + 1
    assert sum(len(body) < PART_CHARACTERS for body in bodies) <= 1 or len(found) == 1


def test_short_files_stay_whole():
    assert parts_of(f"head;{PART}one;{PART}two;") == [f"head;{PART}one;{PART}two;"]


@pytest.fixture
def commands(monkeypatch):
    """What is run to compile, with three processors and parts of a hundred characters."""
    made = []
    run = toolchain._run
    monkeypatch.setattr(parts, "PART_CHARACTERS", 100)
    monkeypatch.setattr(toolchain, "processors", lambda: 3)
    monkeypatch.setattr(toolchain, "_run", lambda command: made.append(command) or run(command))
    return made


def program(x, w):
    """Two kernels around a product, one of which converts floats to integers: that reads a variable which all parts share."""
    whole = (x.softmax(-1) * 1e10).to(torch.int32)
    return ((whole * 1e-10) @ w).exp().sum(0)


def test_parts_compute_what_the_whole_does(commands):
    check(program, torch.randn(64, 32), torch.randn(32, 32), options=UNCACHED)
    assert sum("-c" in command for command in commands) == len(commands) - 1 >= 3


def test_one_processor_compiles_the_whole(commands, monkeypatch):
    monkeypatch.setattr(toolchain, "processors", lambda: 1)
    check(program, torch.randn(64, 32), torch.randn(32, 32), options=UNCACHED)
    assert len(commands) == 1


def test_what_a_compiler_rejects_is_shown_in_the_whole_file(commands, tmp_path):
    source = tmp_path / "bad.c"
    source.write_text(in_parts("int a;", ["int b;" * 50, "this is not C;" * 50]))
    with pytest.raises(CompilerFailedError, match=r"bad\.c:.*this is not C|unknown type"):
        find_toolchain(FAST).compile(source, tmp_path / "bad.so")
    assert len(commands) > 2
