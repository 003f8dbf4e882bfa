"""``flex_attention`` inside compiled functions."""

import pytest
import torch
from beside_eager import Programs
from torch import nn
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import and_masks, create_block_mask, flex_attention

program = Programs()

B, H, L, S, E = 2, 4, 16, 24, 8


def causal(b, h, q, k):
    return q >= k


def qkv(heads=H, keys=S, dtype=torch.float32, batch=B):
    shapes = ((B, H, L, E), (batch, heads, keys, E), (batch, heads, keys, E + 4))
    return [torch.randn(*shape).to(dtype) for shape in shapes]


def attend(c, score_mod=None, *args, **kwargs):
    return c(lambda q, k, v: flex_attention(q, k, v, score_mod, **kwargs) * 2)(*(args or qkv()))


def apart(out, *more):
    """The results as views: eager's, on torch 2.11, is one of memory that nobody else knows."""
    return (out.detach(), *(t.detach() for t in more)) if more else out.detach()


@program(graphs=1, breaks=0)
def plain(c):
    return attend(c)


@program(graphs=1, breaks=0)
def score_of_positions(c):
    return attend(c, lambda s, b, h, q, k: torch.where(q >= k, s * (h + 1), s - b) + (q - k) / 7)


@program(graphs=1, breaks=0)
def score_that_looks_up_tables(c):
    slopes, bias, table = torch.randn(H), torch.randn(B, 2, L, S), torch.randn(L + S)
    return attend(
        c, lambda s, b, h, q, k: s * slopes[h] + bias[b, h % 2, q, k] + table[q - k + S] - slopes[0]
    )


@program(graphs=1, breaks=0)
def score_capped_by_a_tanh(c):
    return attend(c, lambda s, *_: 20 * torch.tanh(s / 20))


@program(graphs=1, breaks=0)
def score_that_sums_a_row(c):
    table = torch.randn(H, 5)
    return attend(c, lambda s, b, h, q, k: s + table[h].sum() + table[:, 1].max())


@program(graphs=1, breaks=0)
def score_sees_the_dtype_of_the_query(c):
    seen = lambda s, b, h, q, k: s + (1 if s.dtype is torch.bfloat16 and q.dtype is torch.int32 else 9)  # noqa: E731
    return attend(c, seen, *qkv(dtype=torch.bfloat16))


@program(graphs=1, breaks=0)
def doubles(c):
    return attend(c, lambda s, b, h, q, k: s + q, *qkv(dtype=torch.float64))


@program(graphs=1, breaks=0)
def mask_of_blocks(c):
    mask = create_block_mask(causal, B, H, L, S, "cpu")
    return attend(c, None, block_mask=mask)


@program(graphs=1, breaks=0)
def mask_by_documents_and_a_window(c):
    document = torch.arange(S) // 5

    def near(b, h, q, k):
        return (document[q] == document[k]) & (q - k < 3)

    return attend(c, None, block_mask=create_block_mask(near, None, None, L, S, "cpu"))


@program(graphs=1, breaks=0)
def mask_of_several(c):
    document = torch.arange(S) // 5
    both = and_masks(causal, lambda b, h, q, k: document[q] == document[k])
    return attend(c, None, block_mask=create_block_mask(both, None, None, L, S, "cpu"))


@program(graphs=1, breaks=0)
def queries_that_see_nothing(c):
    mask = create_block_mask(lambda b, h, q, k: (q > 3) & (q >= k), None, None, L, S, "cpu")
    return attend(c, lambda s, b, h, q, k: s + h, block_mask=mask)


@program(graphs=1, breaks=0)
def mask_made_inside(c):
    def fn(q, k, v):
        mask = create_block_mask(causal, None, None, q.shape[2], k.shape[2], q.device)
        return flex_attention(q, k, v, block_mask=mask)

    return apart(c(fn)(*qkv()))


@program(graphs=1, breaks=0)
def grouped_queries(c):
    return attend(c, lambda s, b, h, q, k: s * h, *qkv(heads=2), enable_gqa=True, scale=0.3)


@program(graphs=1, breaks=0)
def one_batch_of_keys(c):
    mask = create_block_mask(causal, B, None, L, S, "cpu")
    return attend(c, None, *qkv(batch=1), block_mask=mask)


@program(graphs=1, breaks=0)
def layout_of_the_query(c):
    q, k, v = qkv()
    q = torch.randn(B, L, H, E).transpose(1, 2)
    out = apart(c(lambda q, k, v: flex_attention(q, k, v))(q, k, v))
    return out, out.stride()


@program(graphs=1, breaks=0)
def sums_beside_the_result(c):
    return apart(*c(lambda q, k, v: flex_attention(q, k, v, return_lse=True))(*qkv()))


@program(graphs=1, breaks=0)
def under_autocast(c):
    def fn(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return flex_attention(q, k, v, lambda s, b, h, q, k: s + q)

    return apart(c(fn)(*qkv()))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.bias = nn.Linear(E, 3 * E), nn.Parameter(torch.randn(2))

    def forward(self, x):
        q, k, v = self.project(x).unflatten(-1, (3, 2, E // 2)).permute(2, 0, 3, 1, 4)
        out = flex_attention(q, k, v, lambda s, b, h, q, k: s + self.bias[h] * (q - k))
        return out.transpose(1, 2).flatten(2)


@program(breaks=0)
def in_a_model(c):
    model = Attention().requires_grad_(False)
    return [c(model)(torch.randn(B, size, E)) for size in (L, S)]


@program(graphs=1, breaks=0)
def trained(c):
    """Eager refuses gradients on CPU before it comes to the operator, which has them."""
    model, x = Attention(), torch.randn(B, L, E, requires_grad=True)
    allowed, flex._validate_device = flex._validate_device, lambda *_: None
    try:
        c(model)(x).pow(2).sum().backward()
    finally:
        flex._validate_device = allowed
    return x.grad, [p.grad for p in model.parameters()]


@program()
def gradients_on_cpu_are_refused(c):
    q, k, v = qkv()
    return c(lambda q: flex_attention(q, k, v))(q.requires_grad_())


@program()
def functions_that_write(c):
    counts = torch.zeros(1)
    return attend(c, lambda s, b, h, q, k: s + counts.add_(1)[0])


@program()
def sizes_that_do_not_fit(c):
    mask = create_block_mask(causal, None, None, L, L, "cpu")
    return attend(c, None, block_mask=mask)


@program(breaks=0)
def through_torch_compile(c):
    compiled = torch.compile(flex_attention, backend="eager")
    return c(lambda q, k, v: compiled(q, k, v, lambda s, b, h, q, k: s + h) + 1)(*qkv())


class Marked(torch.Tensor):
    """A subclass that overrides nothing: results are of this class."""


@program()
def tensors_of_a_subclass(c):
    out = attend(c, None, *(x.as_subclass(Marked) for x in qkv()))
    return type(out), out


test_program = program.tests()


@pytest.fixture(autouse=True)
def direct(request, monkeypatch):
    """Eager compiles the operator's functions with torch's compiler, which takes seconds and shows them other dtypes."""
    if not {"trained", "score_sees_the_dtype_of_the_query"} & {request.node.callspec.params["name"]}:
        monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
