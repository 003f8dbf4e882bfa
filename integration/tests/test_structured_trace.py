"""``TORCH_TRACE=folder``: the records are those of torch's compiler, and ``tlparse`` renders them."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

PROGRAM = """
import torch

def step(x):
    y = x.sin()
    torch._dynamo.graph_break()
    return y.softmax(-1)

compiled = torch.compile(step)
for size in (3, 4):
    compiled(torch.randn(size, 5, requires_grad=True)).sum().backward()
torch.compile(lambda x: x * 2)(torch.randn(3))
"""
KINDS = """
    artifact:dynamo_graph_break_reason artifact:inductor_post_grad_graph artifact:recompile_reasons
    aot_backward_graph aot_forward_graph aot_inference_graph aot_joint_graph bwd_compilation_metrics chromium_event
    compilation_metrics dynamo_cpp_guards_str dynamo_output_graph dynamo_start inductor_output_code str
""".split()


def traced(folder, name, *start):
    """Run the program after ``start``; return its trace."""
    script = folder / f"{name}.py"
    script.write_text("\n".join((*start, PROGRAM)))
    environment = {
        **os.environ,
        "TORCH_TRACE": str(folder / name),
        "FXSTACK_INDUCTOR_CACHE_DIR": str(folder / "cache"),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "torch"),
    }
    subprocess.run([sys.executable, str(script)], env=environment, check=True)
    (trace,) = (folder / name).iterdir()
    return trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return traced(tmp_path_factory.mktemp("ours"), "fx", "import fxstack", "fxstack.install()")


def records(trace):
    """Return the records with their kinds and payloads."""
    found = []
    for line in trace.read_text().splitlines():
        if line.startswith("\t"):
            found[-1][2].append(line[1:])
            continue
        record = json.loads(line[line.index('{"') :])
        (kind,) = record.keys() - {"frame_id", "frame_compile_id", "attempt", "has_payload", "stack"}
        named = f"{kind}:{record[kind]['name']}" if kind == "artifact" else kind
        found.append((named, record, []))
    return found


def shapes(trace):
    """Return for each kind the keys of its record and of its metadata."""
    found = {}
    for kind, record, _ in records(trace):
        metadata = record[kind.partition(":")[0]]
        keys = set(metadata) if isinstance(metadata, dict) else set()
        envelope, inside = found.setdefault(kind, (set(), set()))
        envelope.update(record)
        inside.update(keys)
    return found


def test_the_records_are_those_of_torchs_compiler(trace, tmp_path):
    ours, theirs = shapes(trace), shapes(traced(tmp_path, "theirs"))
    assert [kind for kind in KINDS if kind not in theirs] == []
    assert [kind for kind in KINDS if kind not in ours] == []
    metrics = {"compilation_metrics", "bwd_compilation_metrics"}
    same = [kind for kind in KINDS if kind not in metrics]
    assert {kind: ours[kind] for kind in same} == {kind: theirs[kind] for kind in same}
    for kind in metrics:
        assert ours[kind][1] <= theirs[kind][1]


def test_a_record_of_each_compilation(trace):
    seen = records(trace)
    ids = [
        (record["frame_id"], record["frame_compile_id"]) for kind, record, _ in seen if kind == "dynamo_start"
    ]
    assert ids == [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0)]
    assert all(
        "frame_id" in record for kind, record, _ in seen if kind.startswith(("aot_", "inductor_", "dynamo_"))
    )
    text = {kind: "\n".join(payload) for kind, _, payload in seen}
    assert "graph_break() was called by the program" in text["artifact:dynamo_graph_break_reason"]
    assert "sizes is (4, 5) (was (3, 5))" in text["artifact:recompile_reasons"]
    assert "void kernel_0(" in text["inductor_output_code"]
    names = dict(record["str"][::-1] for kind, record, _ in seen if kind == "str")
    (start,) = [r["dynamo_start"]["stack"] for k, r, _ in seen if k == "dynamo_start" and r["frame_id"] == 2]
    assert [(names[frame["filename"]][-5:], frame["name"]) for frame in start] == [
        ("fx.py", "<module>"),
        ("fx.py", "<lambda>"),
    ]


@pytest.mark.skipif(shutil.which("tlparse") is None, reason="needs tlparse")
def test_tlparse_renders_the_trace(trace, tmp_path):
    command = ["tlparse", str(trace), "-o", str(tmp_path / "out"), "--no-browser", "--strict"]
    subprocess.run(command, check=True)
    index = (tmp_path / "out/index.html").read_text()
    for compile_id in ("0/0", "1/0", "0/1", "1/1", "2/0"):
        assert f"[{compile_id}]" in index
    linked = re.findall(r'href="([^"]+)"', index)
    for kind in (
        "dynamo_output_graph",
        "aot_joint_graph",
        "aot_forward_graph",
        "aot_backward_graph",
        "aot_inference_graph",
        "inductor_output_code",
        "dynamo_guards",
        "dynamo_graph_break_reason",
        "recompile_reasons",
        "compilation_metrics",
    ):
        assert any(f"/{kind}" in link for link in linked), kind
