"""Archives of machine code: kernels that the compiler rejects."""

import zipfile

import pytest

from fxstack_inductor.errors import CompilerFailedError
from fxstack_inductor.runtime import cubins

ENTRY = {"name": "kernel_0", "signature": {}, "constants": {}, "warps": 4, "stages": 1, "debug": False}


@pytest.fixture
def rejected(tmp_path):
    """An archive made where Triton only interprets, so that compiling fails."""
    pytest.importorskip("triton")
    from fxstack_inductor.runtime.triton_worker import compile_entries  # noqa: PLC0415

    (tmp_path / "kernels.py").write_text("kernel_0 = None\n")
    compile_entries(tmp_path / "kernels.py", [ENTRY], 90, tmp_path / "out.zip")
    return tmp_path / "out.zip"


def test_a_rejected_kernel_has_the_compiler_s_words(rejected):
    assert "Traceback" in cubins.read_archive(rejected)["kernel_0"]


def test_a_rejected_kernel_is_an_error_where_it_is_needed(rejected, monkeypatch, tmp_path):
    def write(_text, output, _entries, _capability):
        with zipfile.ZipFile(output, "w") as made, zipfile.ZipFile(rejected) as found:
            for name in found.namelist():
                made.writestr(name, found.read(name))

    monkeypatch.setattr(cubins, "compile_with_messages", write)
    with pytest.raises(CompilerFailedError, match=r"(?s)for sm_90; this is a defect.*Traceback"):
        cubins.compile_archive(tmp_path / "text", tmp_path / "strict.zip", [ENTRY], 90)
