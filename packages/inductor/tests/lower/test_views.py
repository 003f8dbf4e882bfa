"""Views are index arithmetic inside loops, and views of memory outside."""

import pytest
import torch
from inductor_checks import check, externs, fused, kernels

X = torch.arange(240.0).reshape(4, 6, 10)


def test_views_fuse():
    assert fused(check(lambda x: x.permute(2, 0, 1).reshape(10, 24)[1:7, ::3].unsqueeze(1) * 2, X))


def test_reshapes_that_split_and_merge():
    check(
        lambda x: (x.reshape(24, 10) + 1, x.reshape(2, 12, 2, 5).sin(), x.transpose(0, 2).reshape(-1) + 1), X
    )


def test_selection_and_slices():
    check(lambda x: (x[1] + 1, x[-1] * 2, x[:, 2:5] + 1, x[..., -3:] - 1, x[:, 1:100:2] + 0.5), X)


def test_splits():
    check(lambda x: [p + k for k, p in enumerate(x.split(4, 1))] + [p * 2 for p in x.unbind(0)], X)


def test_expansion_and_diagonal():
    check(lambda x: x[:, :1].expand(4, 6, 10) + x + x.diagonal(0, 0, 1).sum(), X)


def test_output_that_is_a_view_of_an_input_aliases_it():
    compiled = check(lambda x: (x.transpose(0, 1), x[1:]), X)
    x = X.clone()
    turned, sliced = compiled(x)
    assert turned.data_ptr() == x.data_ptr()
    assert sliced.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_offset_of_the_input_is_that_of_the_call():
    compiled = check(lambda x: x.transpose(0, 1), X)
    late = torch.arange(480.0)[240:].reshape(4, 6, 10)
    assert torch.equal(compiled(late)[0], late.transpose(0, 1))


def test_view_of_an_intermediate_shares_its_memory():
    compiled = check(lambda x: (lambda y: (y, y.view(24, 10)))(x + 1), X)
    whole, flat = compiled(X)
    assert whole.data_ptr() == flat.data_ptr()


def test_attention_layout_needs_no_copy_kernel():
    def heads(x):
        return x.view(4, 6, 2, 5).transpose(1, 2).contiguous().view(8, 6, 5) @ torch.ones(8, 5, 3)

    assert len(kernels(check(heads, X))) <= 2


def test_splits_of_loops_make_addresses_linear():
    compiled = check(lambda x: x.view(4, 6, 2, 5).transpose(1, 2).reshape(8, 30) * 2, X)
    assert "%" not in compiled.lowered.c[compiled.lowered.c.rindex("void kernel_0") :]


SIZES = [(torch.randn(rows, columns),) for rows, columns in ((5, 7), (3, 12), (7, 6))]


@pytest.mark.parametrize("part", [slice(1, None), slice(-2, None), slice(None, -1), slice(1, 5, 2)])
def test_slices_of_unknown_sizes_are_index_arithmetic(part):
    compiled = check(lambda x: x[:, part] * 2, torch.randn(4, 9), symbolic=True, others=SIZES)
    assert not externs(compiled)


@pytest.mark.parametrize("part", [slice(0, 0), slice(20, None), slice(-20, 3), slice(5, 2)])
def test_slices_that_reach_over_the_ends(part):
    check(lambda x: (x[:, part] + 1, x.clone()[part].sum()), torch.randn(4, 9))
