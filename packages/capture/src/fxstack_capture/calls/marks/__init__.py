"""Marks and rules that programs give to their own callables.

``registered`` holds the rules that programs add, by identity. ``marked`` obeys the marks of ``torch.compiler``
and of this package; ``told_torch`` has the rules of callables that bear none. ``nonstrict`` records the operators
that a function calls, without tracing its Python. The folder imports ``calls.table`` and ``trace``. Begin with
``registered``.
"""
