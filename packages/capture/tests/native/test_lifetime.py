# ruff: noqa: RET504
"""Nothing leaks, nothing dies too early: entries, owners, code objects, arguments, cells."""

import gc
import sys
import types
import weakref

from fxstack_capture import native
from fxstack_capture.native import Entry, Owner, Tree


class Thing:
    """Something that can be referred to weakly."""


def settle():
    """Collect until nothing is left: what other tests drop goes in several rounds, for finalizers free more."""
    for _ in range(20):
        if not gc.collect():
            return


def pinned_tree(thing):
    return Tree((("Pinned", thing, 0, -1, (), ()),), (), 0, 1)


def weak_tree(thing, index=0):
    return Tree((("Local", index, 0, -1, (("IdentityIs", 0, (thing,)),), ()),), (), 0, 1)


def make_function(source="def f(a): return a"):
    namespace = {}
    exec(source, namespace)
    return namespace.pop("f")


def replacement(a):
    b = a
    return "replaced"


def test_no_reference_is_lost_or_kept(replacer):
    def f(a, b=2, *c, d=4, **e):
        return a

    def nf(a, b=2, *c, d=4, **e):
        x = (a, b)
        return [x]

    def ex(a):
        return a

    def nex(a):
        z = [a]
        raise ValueError

    def make(q):
        def h(a):
            return q

        def nh(a):
            t = (q, a)
            return t

        return h, nh

    h, nh = make(object())
    o = Thing()
    replacer.replace(f, nf).replace(ex, nex).replace(h, nh)

    def loop(n):
        for _ in range(n):
            f(o, o, o, d=o, e=o)
            h(o)
            native.intercept(lambda func, args, kwargs: args, f, (o, o, o), {"d": o, "e": o})
            try:
                ex(o)
            except ValueError:
                pass

    def counts():
        settle()
        watched = (o, f, f.__code__, nf.__code__, nex.__code__, h.__closure__[0], replacer.owner)
        return [sys.getrefcount(x) for x in watched]

    replacer(loop, 100)
    before, blocks = counts(), sys.getallocatedblocks()
    replacer(loop, 5000)
    assert counts() == before
    assert abs(sys.getallocatedblocks() - blocks) < 200


def test_callback_errors_lose_nothing():
    def f(a, *rest, **more):
        return a

    def fail(*_):
        raise LookupError

    def callback(func, code, *_):
        return fail() if func is f else native.SKIP

    o, owner = Thing(), Owner()

    def loop(n):
        for _ in range(n):
            for call in (lambda: f(o, o, k=o), lambda: native.intercept(fail, f, (o, o))):
                try:
                    call()
                except LookupError:
                    pass

    native.run_with(callback, owner, loop, (10,))
    before = sys.getrefcount(o), sys.getrefcount(f), sys.getrefcount(f.__code__)
    native.run_with(callback, owner, loop, (500,))
    assert (sys.getrefcount(o), sys.getrefcount(f), sys.getrefcount(f.__code__)) == before


def test_entries_die_with_their_owner():
    f, thing, owner = make_function(), Thing(), Owner()
    reference = weakref.ref(thing)
    native.install(f.__code__, Entry(owner, pinned_tree(thing), replacement.__code__))
    del thing
    assert reference() is not None
    del owner
    assert reference() is None
    assert native.entries(f.__code__) == []


def test_the_code_of_an_entry_dies_with_the_owner():
    f, made, thing, owner = make_function(), make_function("def f(a): return [a]"), Thing(), Owner()
    entry = Entry(owner, pinned_tree(thing), made.__code__)
    parts = [weakref.ref(part) for part in (thing, made.__code__)]
    native.install(f.__code__, entry)
    assert native.run_with(lambda *_: native.SKIP, owner, f, (1,)) == [1]
    del entry, made, thing, owner
    settle()
    assert [part() for part in parts] == [None, None]


def test_entries_die_with_the_original_code():
    f, thing, owner = make_function(), Thing(), Owner()
    reference = weakref.ref(thing)
    native.install(f.__code__, Entry(owner, pinned_tree(thing), replacement.__code__))
    native.skip(f.__code__, owner)
    del thing, f
    gc.collect()
    assert reference() is None


def test_entries_die_with_what_they_refer_to_weakly():
    f, thing, owner = make_function(), Thing(), Owner()
    entry = Entry(owner, weak_tree(thing), replacement.__code__)
    native.install(f.__code__, entry)
    run = lambda x: native.run_with(lambda *_: native.RUN, owner, f, (x,))
    assert run(thing) == "replaced"
    del thing
    assert native.entries(f.__code__) == []
    assert not entry.installed
    assert entry.tree.dead
    assert [run(Thing()) for _ in range(50)].count("replaced") == 0
    assert run(None) is None


def test_a_dead_tree_accepts_nothing():
    thing = Thing()
    tree = weak_tree(thing)
    f = make_function()
    assert tree.failing(f, (thing,)) == -1
    assert tree.failing(f, (Thing(),)) == 0
    del thing
    assert tree.failing(f, (None,)) == 1


def test_weak_guards_keep_nothing_alive():
    thing = Thing()
    reference = weakref.ref(thing)
    tree = weak_tree(thing)
    del thing
    assert reference() is None
    assert tree.dead


def test_a_tree_may_die_before_what_it_refers_to():
    thing = Thing()
    for _ in range(10):
        weak_tree(thing)
    del thing


def test_cycles_through_guards_are_collected():
    """owner -> entry -> tree -> function -> globals -> owner."""
    f, owner = make_function(), Owner()
    native.install(f.__code__, Entry(owner, pinned_tree(f), replacement.__code__))
    f.__globals__["owner"] = owner
    reference = weakref.ref(owner)
    del f, owner
    gc.collect()
    assert reference() is None


def test_cycles_through_constants_of_the_replacement_are_collected():
    """owner -> entry -> code -> constant -> owner: code objects hide their constants from the collector."""

    class Graph:
        def __call__(self): ...

    f, owner, graph = make_function(), Owner(), Graph()
    graph.owner = owner
    code = replacement.__code__.replace(co_consts=(None, "replaced", graph))
    native.install(f.__code__, Entry(owner, None, code))
    reference = weakref.ref(owner)
    del owner, graph, code
    gc.collect()
    assert reference() is None
    assert native.entries(f.__code__) == []


def test_cycles_through_wrappers_are_collected():
    class Driver(Owner):
        def ask(self, *_):
            return native.SKIP

    driver = Driver()
    driver.wrapped = native.Optimized(make_function(), driver.ask, driver)
    reference = weakref.ref(driver)
    driver.wrapped(1)
    del driver
    gc.collect()
    assert reference() is None


def test_an_owner_may_die_in_its_own_callback():
    f = make_function()

    def callback(func, code, *_):
        holder.clear()
        return native.SKIP

    holder = [Owner()]
    wrapped = native.Optimized(f, callback, holder[0])
    del callback
    assert wrapped(1) == 1


def test_an_entry_may_be_removed_while_it_runs():
    f = types.FunctionType(make_function("def f(a): return a").__code__, {})
    owner = Owner()

    def remover(a):
        a()
        return "finished"

    native.install(f.__code__, Entry(owner, None, remover.__code__))
    result = native.run_with(lambda *_: native.SKIP, owner, f, (lambda: native.reset(f.__code__),))
    assert result == "finished"
    assert native.entries(f.__code__) == []


def test_entries_of_dead_owners_are_harmless():
    owner = Owner()
    entry = Entry(owner, None, replacement.__code__)
    del owner
    assert entry.owner is None
    try:
        native.install(make_function().__code__, entry)
    except ValueError as error:
        assert "owner of this entry no longer exists" in str(error)
    else:
        raise AssertionError


def test_many_cycles_of_compiling_and_dropping():
    def cycle():
        f, owner, thing = make_function(), Owner(), Thing()
        entry = Entry(owner, weak_tree(thing), replacement.__code__)
        native.install(f.__code__, entry)
        native.run_with(lambda *_: native.RUN, owner, f, (thing,))

    for _ in range(50):
        cycle()
    settle()
    blocks = sys.getallocatedblocks()
    for _ in range(3000):
        cycle()
    settle()
    assert abs(sys.getallocatedblocks() - blocks) < 300
