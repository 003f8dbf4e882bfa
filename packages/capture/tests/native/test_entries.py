"""Entries: installing, removing, order, counters, and what may stand in for what."""

import pytest

from fxstack_capture import native
from fxstack_capture.guards.records import Guard, TypeIs
from fxstack_capture.guards.tree import compile_guards
from fxstack_capture.native import Entry, Owner, Tree
from fxstack_capture.sources import Item, Local


def tree(index, cls):
    """A tree that demands the type of one argument."""
    root = ("Local", index, 0, -1, (("TypeIs", 0, (cls,)),), ())
    return Tree((root,), (), 0, 1)


def run(owner, fn, *args):
    return native.run_with(lambda *_: native.RUN, owner, fn, args)


def f(a):
    return "plain"


def as_int(a):
    return "int"


def as_str(a):
    return "str"


@pytest.fixture
def owner():
    yield Owner()
    native.reset(f.__code__)


def test_entries_answer_by_guards_and_count(owner):
    first = Entry(owner, tree(0, int), as_int.__code__)
    second = Entry(owner, tree(0, str), as_str.__code__)
    for entry in (first, second):
        native.install(f.__code__, entry)
    assert [run(owner, f, x) for x in (1, "a", 2, 3, 1.5)] == ["int", "str", "int", "int", "plain"]
    assert (first.hits, second.hits) == (3, 1)


def test_the_last_hit_is_tried_first(owner):
    entries = [Entry(owner, tree(0, cls), as_int.__code__) for cls in (int, str)]
    for entry in entries:
        native.install(f.__code__, entry)
    assert native.entries(f.__code__, owner) == entries[::-1]
    run(owner, f, 1)
    assert native.entries(f.__code__, owner) == entries


def test_remove(owner):
    entry = Entry(owner, None, as_int.__code__)
    native.install(f.__code__, entry)
    assert entry.installed
    assert run(owner, f, 1) == "int"
    native.remove(f.__code__, entry)
    assert not entry.installed
    assert run(owner, f, 1) == "plain"
    native.install(f.__code__, entry)
    assert run(owner, f, 1) == "int"


def test_reset_forgets_entries_and_skips(owner):
    native.install(f.__code__, Entry(owner, None, as_int.__code__))
    other = Owner()
    native.skip(f.__code__, other)
    assert native.is_skipped(f.__code__, other)
    assert not native.is_skipped(f.__code__, owner)
    native.reset(f.__code__, owner)
    assert native.entries(f.__code__) == []
    assert native.is_skipped(f.__code__, other)
    native.skip(f.__code__)
    assert native.is_skipped(f.__code__, owner)
    native.reset(f.__code__)
    assert not native.is_skipped(f.__code__, other)


def test_owner_clear(owner):
    native.install(f.__code__, Entry(owner, None, as_int.__code__))
    owner.clear()
    assert native.entries(f.__code__) == []
    assert run(owner, f, 1) == "plain"


def test_attributes(owner):
    guards = tree(0, int)
    entry = Entry(owner, guards, as_int.__code__)
    assert (entry.owner, entry.tree, entry.code, entry.hits) == (owner, guards, as_int.__code__, 0)
    entry.hits = 5
    assert entry.hits == 5
    assert Entry(owner, None, as_int.__code__).tree is None


def closure(x):
    def inner(a):
        return x

    return inner


@pytest.mark.parametrize(
    ("original", "replacement", "why"),
    [
        (lambda a: 0, lambda a, b: 0, "co_argcount"),
        (lambda a, *, k: 0, lambda a: 0, "co_kwonlyargcount"),
        (lambda a, *r: 0, lambda a: 0, r"\*args or \*\*kwargs"),
        (lambda a, **r: 0, lambda a: 0, r"\*args or \*\*kwargs"),
        (lambda a: 0, closure(1), "free variables"),
        (lambda a: 0, lambda a: (yield), "generators"),
        (lambda a: (yield), lambda a: 0, "generators"),
    ],
)
def test_misfits(owner, original, replacement, why):
    with pytest.raises(ValueError, match=f"does not fit.*: .*{why}"):
        native.install(original.__code__, Entry(owner, None, replacement.__code__))


def test_module_code_is_no_function(owner):
    with pytest.raises(ValueError, match="the original code is not a function body"):
        native.install(compile("x = 1", "m", "exec"), Entry(owner, None, as_int.__code__))


def test_an_entry_is_installed_once(owner):
    entry = Entry(owner, None, as_int.__code__)
    native.install(f.__code__, entry)
    with pytest.raises(ValueError, match="already installed"):
        native.install(f.__code__, entry)


def test_a_tree_has_one_entry(owner):
    guards = tree(0, int)
    kept = Entry(owner, guards, as_int.__code__)
    with pytest.raises(ValueError, match="already has an entry"):
        Entry(owner, guards, as_int.__code__)
    del kept
    Entry(owner, guards, as_int.__code__)


@pytest.mark.parametrize("call", [native.install, native.remove, native.skip, native.entries, native.reset])
def test_wrong_types_are_refused(call):
    with pytest.raises(TypeError):
        call(f, 1)


def test_owner_must_be_an_owner():
    with pytest.raises(TypeError):
        Entry(object(), None, f.__code__)
    with pytest.raises(TypeError, match="owner must be an Owner"):
        native.run_with(print, object(), f, (1,))


def test_an_entry_takes_inputs_from_its_tree():
    def f(x, y): ...

    def source(x, y):
        if not x:
            taken = None
        return taken

    guards = [Guard(Local("x"), TypeIs(list))]
    inputs = (Item(Local("x"), 0), Local("y"))
    tree = compile_guards(guards, f.__code__, inputs)
    owner = native.Owner()
    native.install(f.__code__, native.Entry(owner, tree, source.__code__, takes_inputs=True))
    first, second = object(), object()
    run = lambda *args: native.run_with(lambda *_: native.RUN, owner, f, args)
    assert run([first], second) == (first, second)
    assert run((first,), second) is None
    assert run([first], second)[0] is first


def test_an_entry_without_a_local_variable_cannot_take_inputs():
    def f(x): ...

    tree = compile_guards([], f.__code__, (Local("x"),))
    with pytest.raises(ValueError, match="a local variable that is not an argument"):
        native.Entry(native.Owner(), tree, f.__code__, takes_inputs=True)
