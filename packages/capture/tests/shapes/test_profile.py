"""Shape profiles: saved, loaded, joined, and used by the next process."""

import pytest
import torch
from counting import Counting
from hypothesis import given
from hypothesis import strategies as st

import fxstack_capture
from fxstack_capture import ShapeProfile, profile_of
from fxstack_capture.shapes.history import DYNAMIC, FrameHistory, Inferred

SEEN = st.one_of(st.integers(-3, 3), st.builds(Inferred, st.integers(0, 2)), st.just(DYNAMIC))
HISTORIES = st.builds(FrameHistory, st.dictionaries(st.sampled_from("abc"), SEEN))
PROFILES = st.builds(ShapeProfile, st.dictionaries(st.sampled_from(["f 1", "g 2"]), HISTORIES))


def scaled(x, factor):
    return x * factor + x.size(0)


def calls(sizes, profile=None, fn=scaled):
    """(graphs compiled for these sizes, the profile afterwards)."""
    backend = Counting()
    compiled = fxstack_capture.optimize(backend, profile=profile)(fn)
    for size in sizes:
        x = torch.arange(float(size))
        assert torch.equal(compiled(x, size * 2), fn(x, size * 2))
    return len(backend.graphs), profile_of(compiled)


def test_the_next_process_is_dynamic_at_once(tmp_path):
    count, seen = calls([3, 4, 5])
    assert count == 2
    seen.save(tmp_path / "profile.json")
    loaded = ShapeProfile.load(tmp_path / "profile.json")
    assert loaded == seen
    assert calls([6, 7, 8], loaded)[0] == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_ranks_that_saw_one_size_each_know_more_together():
    ranks = [calls([size])[1] for size in (3, 4)]
    assert calls([5, 6], ranks[0])[0] == 1  # it has seen 3
    assert calls([5, 6], ranks[0].merged(ranks[1]))[0] == 1
    assert calls([5, 6])[0] == 2


def test_an_edited_function_starts_anew():
    _, seen = calls([3, 4])
    other = lambda x, factor: x * factor - x.size(0)
    other.__qualname__ = scaled.__qualname__
    assert calls([5, 6], seen, other)[0] == 2


def test_modules_have_profiles():
    model = torch.nn.Linear(2, 2)
    compiled = fxstack_capture.optimize()(model)
    compiled(torch.ones(3, 2))
    assert len(profile_of(compiled)) == 1


def test_starting_from_a_profile_does_not_change_it():
    _, seen = calls([3])
    before = seen.to_json()
    calls([4, 5], seen)
    assert seen.to_json() == before


def test_what_is_no_profile_is_refused(tmp_path):
    path = tmp_path / "profile.json"
    for text in ("", "[]", "{}", '{"version": 1}', '{"version": 1, "functions": {"f": {"a": []}}}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"profile\.json is not a shape profile"):
            ShapeProfile.load(path)
    with pytest.raises(TypeError, match="expected a callable that optimize returned"):
        profile_of(scaled)


@given(PROFILES, PROFILES, PROFILES)
def test_joins_in_any_order(a, b, c):
    text = a.merged(b, c).to_json()
    assert c.merged(b.merged(a)).to_json() == text
    assert a.merged(b, c, a).to_json() == text
    assert ShapeProfile.from_json(text).to_json() == text
