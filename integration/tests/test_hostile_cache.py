"""A cache folder that is damaged, mixed up, unusable or writable by others: programs run as without a cache."""

import json
import shutil
import warnings

import pytest
import torch

import fxstack

X = torch.linspace(-2, 2, 7)
PROGRAMS = [lambda x: (x * 3.5).sin() + 0.25, lambda x: (x * 3.5).cos() - 0.75]


def entries(root):
    return sorted(path for path in root.glob("??/*") if len(path.name) == 64)


def content(entry):
    return (entry / "kernels.so").read_bytes()


def run(monkeypatch, root, train=False):
    """Compile and run both programs; compare with eager; return the texts of the warnings."""
    monkeypatch.setenv("FXSTACK_INDUCTOR_CACHE_DIR", str(root))
    fxstack.reset()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for program in PROGRAMS:
            x = X.clone().requires_grad_(train)
            torch.testing.assert_close(fxstack.compile(program)(x), program(x))
    return [str(one.message) for one in found]


@pytest.mark.parametrize("train", [False, True])
def test_entries_under_the_names_of_others(monkeypatch, tmp_path, train):
    run(monkeypatch, tmp_path, train)
    found = entries(tmp_path)
    kinds = [[e for e in found if (content(e)[:1] == b"{") is kind] for kind in (False, True)]
    for kind in kinds:
        assert len(kind) >= 2
        kept = [(shutil.copytree(e, tmp_path / f"copy{k}"), e) for k, e in enumerate(kind)]
        for (copy, _), (_, entry) in zip(kept, kept[1:] + kept[:1], strict=True):
            shutil.rmtree(entry)
            shutil.move(copy, entry)
    assert run(monkeypatch, tmp_path, train) == []


def test_a_document_of_another_program(monkeypatch, tmp_path):
    """The store gives a document that is not the key's."""
    run(monkeypatch, tmp_path)
    real = fxstack.disk.ProgramCache.read
    documents = [json.loads(content(e)) for e in entries(tmp_path) if content(e)[:1] == b"{"]

    def read(self, key):
        document = real(self, key)
        return document and next(one for one in documents if one != document)

    monkeypatch.setattr(fxstack.disk.ProgramCache, "read", read)
    assert run(monkeypatch, tmp_path) == []


def deep(folder):
    for entry in entries(folder):
        (entry / "entry.json").write_text("[" * 100_000)


@pytest.mark.parametrize(
    ("name", "change", "warning"),
    [
        (
            "cache",
            lambda folder: folder.chmod(0o777),
            "other users can write .* mode 777: run chmod go-w on it",
        ),
        ("cache", deep, None),
        ("x" * 300, None, "File name too long"),
        ("file/cache", lambda folder: folder.parent.write_text(""), "Not a directory"),
    ],
)
def test_one_warning(monkeypatch, tmp_path, name, change, warning):
    root = tmp_path / name
    if name == "cache":
        run(monkeypatch, root)
    if change:
        change(root)
    found = run(monkeypatch, root)
    assert len(found) == (warning is not None)
    if warning:
        with pytest.warns(UserWarning, match=f"not kept in .*{warning}.*FXSTACK_INDUCTOR_CACHE_DIR"):
            warnings.warn(found[0], UserWarning, stacklevel=1)


def test_a_limit_that_is_no_number(monkeypatch, tmp_path):
    monkeypatch.setenv("FXSTACK_INDUCTOR_CACHE_LIMIT", "abc")
    found = run(monkeypatch, tmp_path)
    assert found
    assert all("the environment variable FXSTACK_INDUCTOR_CACHE_LIMIT is 'abc'" in text for text in found)
