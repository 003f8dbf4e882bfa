"""Objects from outside with Python methods that C code calls, and methods that read the frame of their caller."""

import dataclasses
import sys
import weakref

import pytest
import torch
from beside import breaks_beside_plain

from fxstack_capture import graph_break, native, optimize

pytestmark = pytest.mark.skipif(not native.AVAILABLE, reason="needs the frame hook")


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: str = "y"


class Key:
    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return hash(self.value)

    def __eq__(self, other):
        return isinstance(other, Key) and self.value == other.value


class Logged(Key):
    """Writes down each time that it is hashed."""

    def __init__(self, value, log):
        super().__init__(value)
        self.log = log

    def __hash__(self):
        self.log.append(self.value)
        return super().__hash__()

    __eq__ = Key.__eq__


class Plain:
    def __init__(self, value):
        self.value = value


KEPT = [Plain(i) for i in range(9)]


def of_points(x, points, table):
    total = sum(p.x for p in points)
    return x + total, Point(1) in points, table.get(Point(2)), list(table)


def of_keys(x, keys):
    return x * len(keys), Key(3) in keys, Key(7) in keys, sorted(k.value for k in keys)


def of_logged_keys(x, table, keys, log):
    return x + sum(table.values()), [k.value for k in table], sorted(k.value for k in keys), log[:]


def with_logged_keys(x, table, keys, log):
    made = {key: x for key in table}
    graph_break()
    return len(made), [key.value for key in made], log[:]


def in_order(x, objects):
    first, *rest = objects
    for obj in objects:
        x = x * 2 + obj.value
    return (x, first.value, [o.value for o in rest], [o.value for o in [*objects]], len(list(objects)))


def changed_set(x, objects):
    objects.discard(KEPT[0])
    return x + 1, [o.value for o in objects]


def popped(x, objects):
    return x + objects.pop().value, len(objects)


def test_members_of_a_set_may_have_hashes_in_python():
    args = lambda: (torch.ones(2), {Point(1), Point(2)}, {Point(2): 5})
    assert breaks_beside_plain(of_points, args) == []
    keys = {Key(1), Key(3)}
    assert breaks_beside_plain(of_keys, lambda: (torch.ones(2), keys)) == []


def logged():
    log = []
    keys = [Logged(1, log), Logged(2, log)]
    return torch.ones(2), dict.fromkeys(keys, 3), set(keys), log


@pytest.mark.parametrize("fn", [of_logged_keys, with_logged_keys])
def test_a_hash_with_effects_runs_as_often_as_the_program_asks_for_it(fn):
    breaks_beside_plain(fn, logged)


def test_a_set_of_objects_iterates_in_its_own_order():
    assert breaks_beside_plain(in_order, lambda: (torch.ones(2), set(KEPT))) == []
    assert breaks_beside_plain(in_order, lambda: (torch.ones(2), frozenset(KEPT))) == []


@pytest.mark.parametrize("fn", [changed_set, popped])
def test_where_the_order_is_not_known_the_graph_ends(fn):
    assert set(breaks_beside_plain(fn, lambda: (torch.ones(2), set(KEPT)))) == {"unsupported-object"}


class Base:
    def step(self, x):
        return x * 3


class Derived(Base):
    def step(self, x):
        for _ in range(2):
            graph_break()
            x = super().step(x)
        graph_break()
        return x, super().step.__name__

    def with_closure(self, x):
        kept = lambda: self
        for _ in range(2):
            graph_break()
            x = super().step(x)
        return x, kept() is self


def all_variables(x, extra):
    unused = 5
    graph_break()
    y = x + 1
    graph_break()
    return y, sorted(locals()), eval("unused + 1"), list(vars())


def executed(x):
    table = {}
    graph_break()
    for text in ("table[1] = x", "table[2] = 3"):
        exec(text, locals())
    return x + 1


@pytest.mark.parametrize("name", ["step", "with_closure"])
def test_super_finds_its_object_after_a_break(name):
    breaks_beside_plain(lambda x: getattr(Derived(), name)(x), lambda: (torch.ones(2),))
    breaks_beside_plain(getattr(Derived(), name), lambda: (torch.ones(2),))


def test_variables_that_only_locals_reads_survive_a_break():
    breaks_beside_plain(all_variables, lambda: (torch.ones(2), 3))
    breaks_beside_plain(executed, lambda: (torch.ones(2),))


class Resource:
    living = 0
    gone = []

    def __init__(self, number):
        self.number = number
        Resource.living += 1

    def __del__(self):
        Resource.living -= 1
        Resource.gone.append(self.number)


def uses_resource(x, resource):
    return x + resource.number


def makes_resources(x):
    made = [Resource(i) for i in range(3)]
    y = x + made[1].number
    made.clear()
    return y


@pytest.mark.filterwarnings("error")
def test_finalizers_run_once_for_the_programs_objects_alone():
    Resource.gone.clear()
    kept = Resource(5)
    assert breaks_beside_plain(uses_resource, lambda: (torch.ones(2), kept)) == []
    assert Resource.gone == []


def test_finalizers_of_objects_that_are_made_inside():
    Resource.gone.clear()
    living = Resource.living
    breaks_beside_plain(makes_resources, lambda: (torch.ones(2),))
    assert (Resource.living, sorted(Resource.gone)) == (living, sorted([0, 1, 2] * 4))


def test_what_was_traced_is_let_go_at_once():
    big = Plain(3)
    reference = weakref.ref(big)
    optimize()(lambda x, obj: x + obj.value)(torch.ones(2), big)
    del big
    assert reference() is None


def caller():
    try:
        frame = sys._getframe(1)
    except ValueError:
        return None
    else:
        return frame.f_code.co_name


def asks_for_its_caller(x):
    return x + 1, caller()


def test_a_function_without_variables_may_look_at_frames():
    breaks_beside_plain(asks_for_its_caller, lambda: (torch.ones(2),))


class Described:
    def __get__(self, obj, cls=None):
        return lambda *args: ("bound", len(args))

    def __call__(self, *args):
        return ("called", len(args))


class WithDescribed:
    method = classmethod(Described())


def test_classmethod_treats_a_descriptor_as_this_python_does():
    assert breaks_beside_plain(lambda x: (x + 1, WithDescribed.method(3)), lambda: (torch.ones(2),)) == []


class Slotted:
    __slots__ = ("a", "b")


SLOTTED = Slotted()


def slot_written_and_deleted(x, was_there):
    SLOTTED.b = x
    del SLOTTED.b
    try:
        del SLOTTED.a
    except AttributeError as error:
        return x * 2, str(error), hasattr(SLOTTED, "b")


@pytest.mark.parametrize("was_there", [False, True])
def test_a_slot_that_is_written_and_deleted_is_empty(was_there):
    def make():
        if was_there:
            SLOTTED.b = 1
        return torch.ones(2), was_there

    assert breaks_beside_plain(slot_written_and_deleted, make) == []
    assert not hasattr(SLOTTED, "b")
