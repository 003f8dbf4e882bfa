"""Marks and rules that programs give to their own callables.

``program_rules`` holds the rules that programs add, by identity. ``marked`` obeys the marks of ``torch.compiler`` and of
this package. ``nonstrict`` records the operators that a function calls, without tracing its Python. Begin with
``program_rules``.
"""
