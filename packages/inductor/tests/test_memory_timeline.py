"""What a schedule has in memory: intermediates in the arena, results beside it, views nowhere."""

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from fxstack_inductor import lower, memory_timeline
from fxstack_inductor.runtime.arena import PAGE


def timeline(fn, *inputs):
    return memory_timeline(lower(make_fx(fn, tracing_mode="fake")(*inputs)).plan, {})


def test_results_are_allocated_and_intermediates_are_not():
    found = timeline(lambda x, w: ((x @ w).exp() @ w,), torch.randn(64, 64), torch.randn(64, 64))
    assert found.arena >= 2 * 64 * 64 * 4
    assert found.arena % PAGE == 0
    assert max(size for _, size in found.steps) == 64 * 64 * 4


def test_what_is_fused_has_no_memory():
    found = timeline(lambda x: (x.sin().cos().exp().sum(),), torch.randn(999))
    assert found.arena == 0
    assert found.steps[-1][1] == 4


def test_results_of_calls_end_with_their_last_reader():
    found = timeline(lambda x: (x.sort()[0].cumsum(0).sum(),), torch.randn(1000))
    assert found.steps[0][1] == 1000 * (4 + 8)
    assert found.steps[-1][1] < 1000 * 4 + 8


def test_steps_are_named_after_what_they_compute():
    found = timeline(lambda x, w: ((x @ w).exp(),), torch.randn(4, 4), torch.randn(4, 4))
    assert [name for name, _ in found.steps] == ["mm", "exp"]


def test_arguments_end_with_their_last_reader():
    found = timeline(
        lambda x, w, y, unread: ((x @ w).sort()[0] @ y, w), *(torch.randn(4, 4) for _ in range(4))
    )
    names = [name for name, _ in found.steps]
    x, w, y, unread = (f"{name}_1" for name in ("x", "w", "y", "unread"))
    # w is a result.
    assert found.released == {x: names.index("mm") + 1, y: names.index("mm_1") + 1, unread: 0}


def test_arguments_live_as_long_as_their_views():
    found = timeline(lambda x: (x.unfold(0, 2, 1).sort()[0].sum() * x.new_zeros(()),), torch.randn(9))
    (released,) = found.released.values()
    assert released > [name for name, _ in found.steps].index("sort")


def test_a_program_that_may_run_again_keeps_its_arguments():
    found = timeline(lambda x, i: (x[i].exp(),), torch.randn(9), torch.tensor([1, 2]))
    assert found.released == {}
