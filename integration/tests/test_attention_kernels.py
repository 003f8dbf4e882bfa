"""``flex_attention`` as kernels that never hold all scores: values and gradients beside eager, in Triton's interpreter."""

import subprocess
import sys
from contextlib import contextmanager
from functools import partial

import pytest
import torch
from torch._higher_order_ops.flex_attention import _permute_strides, math_attention
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import fxstack
from fxstack_inductor.lower.graph import Lowering
from fxstack_inductor.templates.attention.writer import AttentionWriter

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.filterwarnings("error:fxstack"),
    pytest.mark.filterwarnings("ignore:flex_attention called"),
    pytest.mark.filterwarnings("ignore:return_lse"),
]
B, H, L, S, E = 1, 2, 20, 40, 8
TRAINING = ["forward", "queries", "keys"]


@pytest.fixture(autouse=True)
def written(monkeypatch):
    """Which kernels are written. Eager trains on CPU, too; a rule that fails is an error."""
    kinds, original = [], AttentionWriter.function

    def function(self, name):
        kinds.append(self.attention.kind)
        return original(self, name)

    def report(_self, _node, error):
        raise error

    monkeypatch.setattr(AttentionWriter, "function", function)
    monkeypatch.setattr(Lowering, "_report", report)
    monkeypatch.setattr(flex, "_validate_device", lambda *_: None)
    return kinds


@contextmanager
def in_operators():
    """Eager's own operators on all scores, which autograd differentiates: without torch's compiler, which eager uses here."""

    def dense(query, key, value, score_mod, block_mask, scale, options):
        out, *more = math_attention(query, key, value, score_mod, block_mask, scale, options)
        return _permute_strides(out, query.stride()), *more

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flex, "flex_attention_hop", dense)
        patch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
        yield


def eager(fn, *inputs):
    with in_operators():
        return fn(*inputs)


def compiled(fn, **options):
    return fxstack.compile(fn, fullgraph=True, options={"target": "cuda"}, **options)


def trained(fn, inputs):
    own = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    results = fn(*own)
    results = results if isinstance(results, tuple) else (results,)
    loss = sum((x.double() * torch.arange(x.numel()).view(x.shape).cos()).sum() for x in results)
    gradients = torch.autograd.grad(loss, [x for x in own if x.requires_grad], allow_unused=True)
    return [*results, *gradients]


def check(fn, inputs, tolerance=2e-5):
    with in_operators():
        wanted = trained(fn, inputs)
    for got, want in zip(trained(compiled(fn), inputs), wanted, strict=True):
        want = torch.zeros_like(got) if want is None else want  # a gradient that eager's operator makes
        torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)


def qkv(dtype=torch.float32, width=E):
    torch.manual_seed(0)
    shapes = ((B, H, L, E), (B, H, S, E), (B, H, S, width))
    return [torch.randn(shape).to(dtype) for shape in shapes]


def blocks(mask, batch=None, heads=None, size=16):
    return create_block_mask(mask, batch, heads, L, S, device="cpu", BLOCK_SIZE=size)


def causal(b, h, m, n):
    return m + 12 >= n


DOCUMENTS = torch.tensor([[0] * 9 + [1] * 31])
TABLE = torch.randn(H, L, S)

MASKS = {
    "odd blocks": lambda: blocks(causal, size=24),
    "rows that see nothing": lambda: blocks(lambda b, h, m, n: (m >= n) & (m > 11)),
    "documents": lambda: blocks(lambda b, h, m, n: (DOCUMENTS[b, m] == DOCUMENTS[b, n]) | (h == 1), B, H),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name, written):
    mask = MASKS[name]()
    check(lambda q, k, v: flex_attention(q, k, v, block_mask=mask, return_lse=True), qkv())
    assert written == TRAINING


SCORES = {
    "positions": lambda s, b, h, m, n: torch.where(m >= n, s * (h + 1), s - b) + (m - n) / 7,
    "a table": lambda s, b, h, m, n: 5 * torch.tanh(s / 5 + TABLE[h, m, n] * TABLE[h, m, 0]),
    "nothing of the score": lambda s, b, h, m, n: (m - n) * 0.125,
}


@pytest.mark.parametrize("name", SCORES)
def test_scores(name, written):
    check(lambda q, k, v: flex_attention(q, k, v, SCORES[name]), qkv(width=E + 4))
    assert written == TRAINING


def test_gradients_of_tables(written):
    def fn(q, k, v, bias, by):
        score = lambda s, b, h, m, n: s * by[h] + bias[h, m - n + S] + by[0]
        return flex_attention(q, k, v, score)

    check(fn, [*qkv(), torch.randn(H, L + S), torch.randn(H)], 1e-4)
    assert written == TRAINING


def test_half_precision(written):
    check(lambda q, k, v: flex_attention(q, k, v, causal_score), qkv(dtype=torch.bfloat16), 5e-2)
    assert written == TRAINING


def causal_score(score, b, h, m, n):
    return torch.where(m + 12 >= n, score, -float("inf"))


def test_shared_heads_and_batches(written):
    shapes = ((2, H, L, E), (1, 1, S, E), (1, 1, S, E))
    mask = blocks(lambda b, h, m, n: m + 12 - 9 * b >= n, batch=2)
    fn = lambda q, k, v: flex_attention(q, k, v, block_mask=mask, enable_gqa=True)
    check(fn, [torch.randn(shape) for shape in shapes])
    assert written == TRAINING


def test_strided_inputs(written):
    def fn(x):
        q, k, v = x.unflatten(-1, (3, H, E)).permute(2, 0, 3, 1, 4).unbind(0)
        return flex_attention(q, k, v, causal_score).transpose(1, 2).flatten(2)

    check(fn, [torch.randn(B, L, 3 * H * E)])
    assert written == TRAINING


def test_sides_of_one_element_and_of_stride_0(written):
    def fn(q, k, v):
        return flex_attention(q, k.expand(B, H, S, E), v.expand(B, H, S, E), causal_score)

    check(fn, [torch.randn(B, H, 1, E), torch.randn(1, 1, 1, E), torch.randn(1, 1, S, 1)])
    assert written == TRAINING


def test_one_query_and_many_keys(written):
    """The keys are split, and the heads that share keys are in one tile."""
    query, key, value = torch.randn(1, 4, 1, E), *torch.randn(2, 1, 2, 600, E)
    at = torch.tensor(333)
    score = lambda s, b, h, m, n: torch.where(n <= at, s * (h + 1), -float("inf"))
    fn = lambda q, k, v: flex_attention(q, k, v, score, enable_gqa=True, return_lse=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(fn)(query, key, value), eager(fn, query, key, value))
    assert written == ["forward"]


def test_parts_that_see_nothing():
    query, key, value = torch.randn(1, 2, 1, E), *torch.randn(2, 1, 2, 600, E)
    score = lambda s, b, h, m, n: torch.where((n < 20) & (h == 0), s, -float("inf"))
    fn = lambda q, k, v: flex_attention(q, k, v, score, return_lse=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(fn)(query, key, value), eager(fn, query, key, value))


def test_a_cache_of_keys_that_is_written_to(written):
    def fn(keys, values, query, new, at):
        keys.index_copy_(2, at, new)
        values.index_copy_(2, at, new + 1)
        score = lambda s, b, h, m, n: torch.where(n <= at[0] + m, s, -float("inf"))
        return flex_attention(query, keys, values, score)

    def run(function):
        _, keys, values = qkv()
        torch.manual_seed(1)
        query, new = torch.randn(2, B, H, 1, E)
        return function(keys, values, query, new, torch.tensor([13])), keys, values

    with torch.no_grad():
        torch.testing.assert_close(run(compiled(fn)), run(partial(eager, fn)))
    assert written == ["forward"]


def test_symbolic_sizes(written):
    def fn(q, k, v, table):
        return flex_attention(q, k, v, lambda s, b, h, m, n: s + table[h, m - n + q.shape[2]])

    run = compiled(fn)
    for size in (20, 33, 17):
        inputs = [*torch.randn(3, B, H, size, E), torch.randn(H, 3 * size)]
        with torch.no_grad():
            torch.testing.assert_close(run(*inputs), eager(fn, *inputs), rtol=2e-5, atol=2e-5)
    assert len(written) == 2  # the second one is for all sizes


def test_what_is_no_single_number_is_computed_by_operators(written):
    sums = lambda s, b, h, m, n: s + TABLE[h].sum()
    check(lambda q, k, v: flex_attention(q, k, v, sums), qkv(), 1e-4)
    assert not written


def test_first_use_in_a_process():
    """Torch imports its compiler when ``flex_attention`` asks it a question."""
    program = """
import torch, fxstack
from torch.nn.attention.flex_attention import flex_attention

q = torch.randn(1, 1, 4, 8)
run = fxstack.compile(lambda q: flex_attention(q, q, q), backend="eager", fullgraph=True)
torch.testing.assert_close(run(q), torch.nn.functional.scaled_dot_product_attention(q, q, q))
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_not_a_number_stays_in_its_row():
    query, key, value = qkv()
    query[0, 1, 3] = torch.nan
    fn = lambda q, k, v: flex_attention(q, k, v, causal_score)
    with torch.no_grad():
        got, want = compiled(fn)(query, key, value), eager(fn, query, key, value)
    torch.testing.assert_close(got, want, equal_nan=True)
