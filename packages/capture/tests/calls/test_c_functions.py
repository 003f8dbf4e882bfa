"""The table of facts about C functions: it is about C functions, and names each as CPython does."""

import types

import pytest

from fxstack_capture.calls import c_functions

C_KINDS = (type, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
DECLARED = [fn for _, functions in c_functions._DECLARED for fn in functions if callable(fn)]


def test_no_function_of_python_has_traits():
    assert not [fn for fn in DECLARED if isinstance(fn, types.FunctionType)]


@pytest.mark.parametrize(
    ("fn", "trait"),
    [
        (len, c_functions.KEEPS_SYMBOLS),
        (dict.get, c_functions.HASHES_KEY),
        (set.add, c_functions.HASHES),
        (dict.update, c_functions.IGNORES_VALUES),
        (isinstance, c_functions.IDENTIFIES),
        (list.append, c_functions.MOVES),
        (abs, c_functions.PURE),
    ],
)
def test_traits(fn, trait):
    assert c_functions.traits_of(fn) & trait


@pytest.mark.parametrize("fn", [print, set.__len__, object()])
def test_other_functions_have_none_of_these(fn):
    assert not c_functions.traits_of(fn) & (c_functions.PURE | c_functions.HASHES)


def test_what_hashes_a_key_may_tell_objects_apart():
    keyed = [traits for traits in c_functions.TRAITS.values() if traits & c_functions.HASHES_KEY]
    assert keyed
    assert all(traits & c_functions.HASHES for traits in keyed)


def test_consumed_arguments_are_slices_of_c_functions():
    functions = [fn for _, fns in c_functions._CONSUMED for fn in fns]
    assert all(isinstance(fn, C_KINDS) for fn in functions)
    assert len(c_functions.CONSUMED) == len(set(map(id, functions)))
