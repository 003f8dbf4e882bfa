"""Which of CPython's test modules are run, and which methods cannot be compared."""

MODULES = """
test_list test_dict test_set test_tuple test_deque test_defaultdict test_ordered_dict test_collections
test_generators test_exceptions test_raise test_with test_contextlib test_functools test_itertools
test_operator test_math test_float test_int test_complex test_bool test_str test_iter test_sort
test_range test_enumerate test_property test_descr test_class test_super test_scope test_patma
test_dataclasses test_enum test_listcomps test_unpack test_unpack_ex test_userdict test_userlist
test_userstring test_heapq test_bisect test_named_expressions test_keywordonlyarg
test_positional_only_arg test_exception_group test_except_star test_yield_from test_genexps
test_extcall test_augassign test_decorators test_fstring test_slice test_binop test_compare
test_contains test_metaclass test_subclassinit test_abc test_copy test_reprlib test_weakref test_bytes
test_random test_statistics test_fractions test_types test_funcattrs test_global test_grammar
test_setcomps test_dictcomps test_dictviews test_string test_call test_baseexception test_isinstance
test_exception_variations test_generator_stop test_typechecks test_context test_json
""".split()
"""Modules that a version does not have are passed over."""

INCOMPARABLE = {
    "test_repr_deep": "measures how deep the C stack is",
    "test_deep": "measures how deep the C stack is",
    "test_deep_split": "measures how deep the C stack is",
    "test_trashcan_recursion": "a million iterations of nothing, each of which is traced",
    "test_long_chain_of_empty_iterables": "a million iterations of nothing, each of which is traced",
    "test_raise_and_yield_from": "where a signal arrives that the program sends itself",
    "test_default_wildcard": "sys.settrace sees the frames that run, which are not the program's",
    "test_only_default_wildcard": "sys.settrace sees the frames that run, which are not the program's",
    "test_default_capture": "sys.settrace sees the frames that run, which are not the program's",
    "test_only_default_capture": "sys.settrace sees the frames that run, which are not the program's",
    "test_no_default": "sys.settrace sees the frames that run, which are not the program's",
    "test_unreachable_code": "sys.settrace sees the frames that run, which are not the program's",
    "test_filter_dealloc": "a million iterators in each other, each of which is traced",
    "test_hash_effectiveness": "a hundred thousand iterations of nothing, each of which is traced",
    "test_bug1229429": "counts references to objects",
    "test_ref_counting_behavior": "counts references to objects",
    "test_splittable_popitem": "measures how large a dictionary's table is",
}
