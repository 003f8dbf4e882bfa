"""Results that are written past the caches: all loop structures, types and lengths; which results, and when."""

import shutil
import subprocess

import pytest
import torch
from inductor_checks import check

from fxstack_inductor.codegen.c import streams
from fxstack_inductor.codegen.c.module import PRELUDE
from fxstack_inductor.runtime.toolchain import cpu_features

pytestmark = pytest.mark.skipif("avx2" not in cpu_features().split(), reason="x86 with AVX2")
DTYPES = [torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.float16, torch.uint8]


@pytest.fixture(autouse=True)
def everything(monkeypatch):
    """As if no tensor fitted into a cache, and operations took no time."""
    monkeypatch.setattr(streams, "least_bytes", lambda: 1)
    monkeypatch.setattr(streams, "work", lambda kernel: 0)


work = streams.work


def t(dtype, *shape):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(7)) * 4).abs().to(dtype)


def written_past(fn, *inputs):
    """How many results' stores go past the caches."""
    text = check(fn, *inputs).lowered.c.partition("void kernel_0")[2]
    assert ("FENCE" in text) == ("stream(" in text)
    return text.count(" stream(")


PROGRAMS = {
    "points": lambda x: x * 2 + 1,
    "two": lambda x: (x * 2, x + 1),
    "five": lambda x: (x * 2, x + 1, x * 3, x + 4, x * 5),
    "with a column": lambda x: x * x[:, :1],
    "rows": lambda x: (x * 2, x.amax(-1), x + x.amax(-1, keepdim=True)),
    "columns": lambda x: (x * 2, x.amax(0), x + x.amax(0)),
    "all": lambda x: (x * 3, x.amax()),
    "tiles": lambda x: x.t().contiguous() + x.t() * 2,
    "both directions": lambda x: (x * 2, (x * 2).t().contiguous()),
    "scans": lambda x: x.cumsum(-1) * 2,
    "scans of columns": lambda x: x.cumsum(0) + 1,
    "places": lambda x: (x.argmax(-1), x * 2),
    "parts": lambda x: torch.cat([x * 2, x, x + 1], -1),
    "parts of rows": lambda x: torch.cat([x * 2, x, x + 1]),
    "pairs": lambda x: torch.stack([x * 2, x + 1], -1),
    "triples": lambda x: torch.stack([x[:, :9] * 2, x[:, :9] + 1, x[:, :9]], -1).sum(-1),
    "seven columns": lambda x: (y := x.reshape(-1, 7)) * y[:, :1] + y[:1],
    "sixteen columns": lambda x: (y := x.reshape(-1, 16)) * 2 + y.amax(0),
    "turned around": lambda x: x.flip(-1) * 2,
    "rolled": lambda x: x.roll(3, -1) * 2 + x,
    "read at places": lambda x: x[:, torch.arange(x.shape[1]).flip(0)] * 2,
    "expanded": lambda x: x[:1].expand(50, -1) * 2,
    "comparisons": lambda x: (x > 2, x * 2),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_strategies(name, dtype):
    check(PROGRAMS[name], t(dtype, 112, 272))
    check(PROGRAMS[name], t(dtype, 8, 1050))


@pytest.mark.parametrize("size", [1, 8, 15, 16, 64, 65, 127, 128, 511, 512, 513, 1024, 1031])
def test_lengths(size):
    check(lambda x: (x * 2, x.exp()), t(torch.float32, size))
    check(lambda x: x * x[:, :1] + 1, t(torch.float32, 5, size))
    check(lambda x: (x * 2, x.sum(-1)), t(torch.float64, 5, size))


def test_addresses_that_begin_no_line():
    base = t(torch.float32, 3000)
    check(lambda x: (x * 2, x.view(-1)[3:] + 1), base[5:2000])


@pytest.mark.parametrize(
    "name", ["points", "two", "with a column", "rows", "columns", "all", "tiles", "parts"]
)
def test_stores_go_past_the_caches(name):
    assert written_past(PROGRAMS[name], t(torch.float32, 128, 1024)) > 0


@pytest.mark.parametrize("compiler", [c for c in ("gcc", "clang") if shutil.which(c)])
@pytest.mark.parametrize("flag", ["-mavx2", "-mavx512f"])
def test_compilers_write_whole_vectors(compiler, flag, tmp_path):
    """clang writes words one by one if it does not know that their place is a multiple of a vector."""
    source = tmp_path / "past.c"
    source.write_text(f"{PRELUDE}\nvoid past(void* a, const void* b, int64_t n) {{ stream(a, b, n); FENCE }}")
    result = tmp_path / "past.s"
    subprocess.run([compiler, "-O2", "-w", flag, "-S", source, "-o", result], check=True)
    assert "vmovntp" in result.read_text()


def test_what_a_later_pass_reads_stays_in_the_caches():
    x = t(torch.float32, 3000, 1024)
    assert written_past(lambda x: ((y := x.tanh()), y - y.mean(0)), x) == 1


def test_short_rows_of_broken_lines_stay_in_the_caches():
    assert written_past(lambda x: x * x[:, :1], t(torch.float32, 128, 100)) == 0
    assert written_past(lambda x: x * x[:, :1], t(torch.float32, 128, 112)) == 1
    assert written_past(lambda x: x * x[:, :1], t(torch.bfloat16, 128, 3001)) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("columns", [1029, 1100, 2000, 3001])
def test_runs_of_long_rows_begin_with_lines(columns, dtype):
    x = t(dtype, 12, columns)
    assert written_past(lambda x: x * x[:, :1] + 1, x) == 1
    assert written_past(lambda x: x.roll(3, -1) * 2, x) == 1
    check(lambda x: (x * x[:, :1], x + x[:, :1], x.amax(-1) - 1), x)
    check(lambda x: x * x[:, :1], t(dtype, 3000 * 5 + 3)[3:].view(5, 3000)[:, :columns])


def test_sums_beside_results_do_not_depend_on_addresses():
    assert written_past(lambda x: (x * 2, x.sum(-1)), t(torch.float32, 12, 3001)) == 0


def test_scatters_stay_in_the_caches():
    x, i, v = t(torch.float32, 20, 512), torch.tensor([3, 5, 3]), t(torch.float32, 3, 512)
    check(lambda x, i, v: (x.index_add(0, i, v), v * 2), x, i, v)


def test_sizes_that_are_unknown_stay_in_the_caches():
    compiled = check(lambda x: x * 2, t(torch.float32, 128, 1024), symbolic=True)
    assert " stream(" not in compiled.lowered.c.partition("void kernel_0")[2]


def test_kernels_that_compute_for_long_stay_in_the_caches(monkeypatch):
    monkeypatch.setattr(streams, "work", work)
    x = t(torch.float32, 128, 1024)
    assert written_past(lambda x: x.exp(), x) == 0
    assert written_past(lambda x: x * 2 + 1, x) == 1


def test_small_tensors_stay_in_the_caches(monkeypatch):
    monkeypatch.setattr(streams, "least_bytes", lambda: 2 * 4 * 128 * 1024)
    assert written_past(lambda x: x * 2, t(torch.float32, 127, 1024)) == 0
    assert written_past(lambda x: x * 2, t(torch.float32, 128, 1024)) == 1


@pytest.mark.parametrize(
    ("information", "size", "least"),
    [
        ("vendor_id : AuthenticAMD\nflags : fma avx2", "32768K\n", 24 << 20),
        ("vendor_id : AuthenticAMD\nflags : fma avx2", "1G", 768 << 20),
        ("vendor_id : AuthenticAMD\nflags : fma", "32768K\n", None),
        ("vendor_id : GenuineIntel\nflags : avx2", "32768K\n", None),
        ("vendor_id : AuthenticAMD\nflags : avx2", "", None),
        ("vendor_id : AuthenticAMD\nflags : avx2", "K", None),
        (None, "32768K\n", None),
    ],
)
def test_processors(information, size, least, tmp_path):
    paths = [tmp_path / "information", tmp_path / "size"]
    for path, text in zip(paths, (information, size), strict=True):
        if text is not None:
            path.write_text(text)
    assert streams.bytes_past(*paths) == least
