"""Marks and rules that programs give to their own callables.

``program_rules`` has the rules that programs add, by the id of the callable. ``marked`` handles the marks of
``torch.compiler`` and of this package. ``nonstrict`` records the operators that a function calls, without
tracing its Python. Begin with ``program_rules``.
"""
