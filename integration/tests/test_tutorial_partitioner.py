"""Every Python block of the partitioner tutorial runs, in order, in one namespace."""

import re
from pathlib import Path

import torch

from fxstack_partition import check_partition, corpus, partition, simulate

PAGE = Path(__file__).parents[2] / "docs/tutorial-partitioner.md"


def run_page(folder, monkeypatch):
    monkeypatch.chdir(folder)
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    return names


def test_the_page_runs(tmp_path, monkeypatch, capsys):
    names = run_page(tmp_path, monkeypatch)
    assert {p.name for p in tmp_path.iterdir()} == {"timeline.png", "pareto.png", "cut.png"}
    assert "thrifty" in capsys.readouterr().out
    assert names["model"][0].weight.grad is not None
    assert torch.isfinite(names["model"][0].weight.grad).all()
    joint = corpus.load("softmaxes")
    part = partition(joint, "thrifty")
    check_partition(joint, part)
    assert simulate(part).saved_bytes < simulate(partition(joint, "save_all")).saved_bytes


def test_the_partitioner_has_thirty_lines_at_most():
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    longest = max(blocks, key=len)
    assert len([line for line in longest.splitlines() if line.strip()]) <= 30
