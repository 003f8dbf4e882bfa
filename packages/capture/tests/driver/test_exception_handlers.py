"""Graphs that write to their inputs inside of ``try`` and ``with``: one graph where no handler acts on an error.

Each program runs with indices in and out of range. Results, errors, writes and the order of side effects are eager's.
"""

import gc
import weakref
from contextlib import contextmanager, nullcontext, suppress

import pytest
import torch
from running import Graphs

import fxstack_capture as fx


class Flags:
    def __init__(self):
        self.on = False
        self.state = "idle"
        self.log = []


@contextmanager
def switched_on(flags):
    flags.on = True
    try:
        yield
    finally:
        flags.on = False


@contextmanager
def logged(flags):
    try:
        yield
    except IndexError:
        flags.log.append("failed")
        raise


class Stopping:
    def __exit__(self, kind, error, trace):
        return kind is IndexError

    def __enter__(self):
        return self


class Counting:
    def __init__(self, flags):
        self.flags = flags

    def __enter__(self):
        self.flags.log.append("in")

    def __exit__(self, *_):
        self.flags.log.pop()


def taken(x, i):
    x.add_(1)
    return x.index_select(0, i)


def restored(x, i, flags):
    before, flags.on = flags.on, True
    try:
        return taken(x, i)
    finally:
        flags.on = before


def set_to_default(x, i, flags):
    flags.on = True
    try:
        return taken(x, i)
    finally:
        flags.on = False


def other_errors(x, i, flags):
    try:
        return taken(x, i)
    except (ImportError, KeyError, AttributeError, StopIteration):
        return x * 2


def raised_again(x, i, flags):
    try:
        return taken(x, i)
    except IndexError:
        raise


def generator_context(x, i, flags):
    with switched_on(flags):
        return taken(x, i)


def class_context(x, i, flags):
    with Counting(flags):
        return taken(x, i)


def torch_contexts(x, i, flags):
    with nullcontext(), torch.no_grad(), torch.autocast("cpu", enabled=False):
        return taken(x, i)


def popped(x, i, flags):
    flags.log.append("x")
    try:
        return taken(x, i)
    finally:
        flags.log.pop()


def nested(x, i, flags):
    try:
        with switched_on(flags):
            return restored(x, i, flags)
    except KeyError:
        return x


def several_calls(x, i, flags):
    with switched_on(flags):
        total = torch.zeros(1, 2)
        for _ in range(3):
            total = total + taken(x, i) + x.gather(0, i[:, None].expand(-1, 2))
    return total


@pytest.mark.parametrize(
    "program",
    [
        *(restored, set_to_default, other_errors, raised_again, generator_context, class_context),
        *(torch_contexts, popped, nested, several_calls),
    ],
)
def test_handlers_that_only_restore_leave_one_graph(program):
    (graph,) = compared(program)
    assert "index_select" in graph.code


def caught(x, i, flags):
    try:
        return taken(x, i)
    except IndexError as error:
        flags.log.append(str(error))
        return x * 2


def caught_by_the_base(x, i, flags):
    try:
        return taken(x, i)
    except (KeyError, LookupError):
        return x * 2


def replaced(x, i, flags):
    try:
        return taken(x, i)
    except IndexError as error:
        raise ValueError("bad index") from error


def annotated(x, i, flags):
    try:
        return taken(x, i)
    except IndexError as error:
        error.args = (*error.args, "in annotated")
        raise


def logged_at_the_end(x, i, flags):
    try:
        return taken(x, i)
    finally:
        flags.log.append("end")


def logged_on_failure(x, i, flags):
    with logged(flags):
        return taken(x, i)


def state_at_the_end(x, i, flags):
    flags.state = "running"
    try:
        return taken(x, i)
    finally:
        flags.state = "done"


def written_at_the_end(x, i, flags):
    try:
        return taken(x, i)
    finally:
        x.mul_(3)


def drawn_at_the_end(x, i, flags):
    try:
        return taken(x, i)
    finally:
        flags.noise = torch.rand(())


def returned_at_the_end(x, i, flags):
    try:
        return taken(x, i)
    finally:
        return x  # noqa: B012, PLE0101 - the program under test


def suppressed(x, i, flags):
    with suppress(IndexError):
        return taken(x, i)
    return x * 5


def suppressed_in_no_grad(x, i, flags):
    with suppress(IndexError), torch.no_grad():
        return taken(x, i)
    return x * 5


def stopped_by_a_context(x, i, flags):
    with Stopping():
        return taken(x, i)
    return x * 5


def caught_by_the_second_call(x, i, flags):
    flags.state = "first"
    try:
        y = x.gather(0, torch.zeros_like(i)[:, None])
        flags.state = "second"
        return y + taken(x, i)
    except IndexError:
        if flags.state == "first":
            raise
        return x * 2


@pytest.mark.parametrize(
    "program",
    [
        *(caught, caught_by_the_base, replaced, annotated, logged_at_the_end, logged_on_failure),
        *(state_at_the_end, written_at_the_end, drawn_at_the_end, returned_at_the_end),
        *(suppressed, suppressed_in_no_grad, stopped_by_a_context, caught_by_the_second_call),
    ],
)
def test_handlers_that_act_on_an_error_run(program):
    assert "index_select" not in compared(program)[0].code


@pytest.mark.parametrize(
    ("program", "number"), [(caught, 5), (caught, 1), (restored, 1), (logged_on_failure, 1)]
)
def test_arguments_die_with_the_call(program, number):
    compiled = fx.optimize(Graphs())(program)
    gc.disable()
    try:
        for _ in range(3):
            flags = Flags()
            compiled(torch.ones(3, 2), torch.tensor([number]), flags)
            dead = weakref.ref(flags)
            del flags
            assert dead() is None
    finally:
        gc.enable()


def compared(program):
    """Compare calls with good and bad indices with eager. Return the graphs."""
    backend = Graphs()
    optimised = fx.optimize(backend)(program)
    for number in (0, 5, 1, 5):
        assert seen(optimised, number) == seen(program, number)
    return backend


def seen(program, number):
    torch.manual_seed(0)
    x, flags = torch.ones(3, 2), Flags()
    try:
        what = program(x, torch.tensor([number]), flags).tolist()
    except Exception as error:
        what = type(error), error.args, type(error.__cause__), type(error.__context__)
    noise = vars(flags).pop("noise", torch.zeros(()))
    return what, x.tolist(), vars(flags), noise.item(), torch.rand(()).item(), torch.is_grad_enabled()
