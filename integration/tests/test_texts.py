"""``repr`` and ``str`` of public objects fit on a screen, also for large programs."""

import pytest
import torch
from torch import nn

import fxstack
import fxstack_capture
import fxstack_functionalize
import fxstack_inductor
import fxstack_interchange
import fxstack_partition
from fxstack.trace import events

PACKAGES = (
    fxstack,
    fxstack_capture,
    fxstack_functionalize,
    fxstack_inductor,
    fxstack_interchange,
    fxstack_partition,
)
NET = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.GELU()) for _ in range(8)))


def broken(x):
    for k in range(40):
        x = x.sin()
        if k % 8 == 0 and x.sum() > 1e9:
            x = x + 1
    return NET(x)


@pytest.fixture(scope="module")
def objects():
    """Return objects of each kind that users get, by name."""
    x = torch.randn(4, 8)
    captured = fxstack_capture.capture(NET, x)
    joint = fxstack_functionalize.trace_joint(captured)
    decompositions = fxstack_inductor.decompositions()
    inference = fxstack_functionalize.trace_inference(captured, decompositions=decompositions)
    part = fxstack_partition.partition(joint)
    lowered = fxstack_inductor.lower(inference.graph_module)
    compiled = fxstack.compile(NET)
    compiled(x).sum().backward()
    log = fxstack.compile_log(compiled)
    session = events(log)
    found = {
        "captured": captured,
        "explanation": fxstack.explain(broken)(x),
        "log": log,
        "joint": joint,
        "signature": joint.signature,
        "partition": part,
        "explained partition": fxstack_partition.explain(part),
        "comparison": fxstack_partition.compare(joint),
        "simulation": fxstack_partition.simulate(part),
        "joint facts": fxstack_partition.analyze(joint),
        "lowered": lowered,
        "plan": lowered.plan,
        "memory": fxstack_inductor.memory_timeline(lowered.plan, {}),
        "lowered for CUDA": fxstack_inductor.lower(inference.graph_module, target="cuda"),
        "session": session,
        **{f"event {type(event.body).__name__}": event for event in session.events},
    }
    public = ((f"{p.__name__}.{name}", getattr(p, name)) for p in PACKAGES for name in p.__all__)
    return found | {name: value for name, value in public if not callable(value)}


@pytest.mark.parametrize("kind", [repr, str])
def test_texts_fit_on_a_screen(objects, kind):
    texts = {name: kind(value) for name, value in objects.items()}
    too_long = {name: len(text) for name, text in texts.items() if text.count("\n") > 24 or len(text) > 3000}
    assert too_long == {}


def test_what_is_left_out_is_counted(objects):
    lines = str(objects["explanation"]).splitlines()
    left = len(objects["explanation"].details().splitlines()) - 24
    assert lines[-1] == f"... {left} more lines; .details() has all"


def test_explanations_open_frame_by_frame_in_notebooks(objects):
    text = objects["explanation"]._repr_html_()
    assert text.count("<details>") == len(objects["explanation"].frames)
    assert "data-dependent-branch" in text
    assert "<lambda>" not in text
