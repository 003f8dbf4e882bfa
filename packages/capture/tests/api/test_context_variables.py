"""Context variables in compiled code: read in the context of the call, written when the graph has run."""

import contextvars

import pytest
import torch
from beside import Breaks

import fxstack_capture
from fxstack_capture import native

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")
X = torch.ones(2)
NUMBER = contextvars.ContextVar("number", default=2)
UNSET = contextvars.ContextVar("unset")
ITEMS = contextvars.ContextVar("items", default=None)


def reads(x):
    return x + NUMBER.get()


def set_and_reset(x):
    token = NUMBER.set(5)
    y = x + NUMBER.get()
    NUMBER.reset(token)
    return y + NUMBER.get()


def stays_set(x):
    NUMBER.set(7)
    return x + NUMBER.get()


def nested(x):
    outer = NUMBER.set(9)
    inner = NUMBER.set(10)
    NUMBER.reset(inner)
    seen = NUMBER.get()
    NUMBER.reset(outer)
    return x + seen


def changes_what_it_holds(x):
    ITEMS.get().append(3)
    return x + len(ITEMS.get())


def holds_a_tensor(x):
    UNSET.set(x * 2)
    return UNSET.get() + 1


def not_set(x):
    try:
        return x + UNSET.get()
    except LookupError:
        return x + 1, UNSET.get(4)


def set_where_nothing_was(x):
    token = UNSET.set(5)
    y = x + UNSET.get()
    UNSET.reset(token)
    return y + UNSET.get(3) + NUMBER.get(8)


def new(x):
    made = contextvars.ContextVar("made", default=x + 1)
    before = made.get()
    token = made.set(before * 2)
    during = made.get()
    made.reset(token)
    return before, during, made.get(), made.name


def new_without_default(x):
    made = contextvars.ContextVar("made")
    try:
        return x + made.get()
    except LookupError:
        return x + 1, made.get(4)


WHOLE = [
    *(reads, set_and_reset, stays_set, nested, changes_what_it_holds, holds_a_tensor),
    *(not_set, set_where_nothing_was, new, new_without_default),
]


def around_a_break(x):
    token = NUMBER.set(9)
    fxstack_capture.graph_break()
    y = x + NUMBER.get()
    NUMBER.reset(token)
    return y


def reset_twice(x):
    token = NUMBER.set(9)
    NUMBER.reset(token)
    try:
        NUMBER.reset(token)
    except RuntimeError as error:
        return x + 1, str(error)[:20]


def new_leaves(x):
    made = contextvars.ContextVar("made")
    made.set(3)
    return x + 1, lambda: made.get()


def new_over_a_break(x):
    made = contextvars.ContextVar("made")
    token = made.set(3)
    fxstack_capture.graph_break()
    y = x + made.get()
    made.reset(token)
    return y, made.get(1)


def token_leaves(x):
    token = NUMBER.set(3)
    again = NUMBER.set(4)
    return x + 1, type(token).__name__, token.var.name, again.old_value


def observed(fn):
    """Results and contexts of three calls in a context of their own."""

    def calls():
        ITEMS.set([1])
        seen = []
        for value in (None, 11, None):
            if value is not None:
                NUMBER.set(value)
                UNSET.set(value)
            seen.append((str(fn(X)), NUMBER.get(), str(UNSET.get("none")), list(ITEMS.get())))
        return seen

    return contextvars.copy_context().run(calls)


def breaks_of(fn, backend=lambda graph, _: graph.forward):
    watch = Breaks()
    assert observed(fxstack_capture.optimize(backend, observer=watch)(fn)) == observed(fn)
    return watch.ids


@pytest.mark.parametrize("fn", WHOLE)
def test_without_a_break(fn):
    graphs = []
    assert breaks_of(fn, lambda graph, _: graphs.append(graph) or graph.forward) == []
    assert graphs


@pytest.mark.parametrize("fn", [around_a_break, reset_twice])
def test_with_a_break(fn):
    assert breaks_of(fn)


def test_tokens_leave_as_they_are():
    breaks_of(token_leaves)


def test_new_variables_leave_as_they_are():
    breaks_of(new_over_a_break)
    first, second = (fxstack_capture.optimize()(new_leaves)(X)[1] for _ in range(2))
    assert (first(), first.__closure__[0].cell_contents is second.__closure__[0].cell_contents) == (3, False)
