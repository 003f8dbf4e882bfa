"""The rules of callables of Python, of the standard library, of NumPy and of torch.

Each module has the rules of one subject. The import of the module registers them in ``RULES``.
``calls.decisions.precedence`` imports all modules. ``builtins`` has the language's functions and types,
``library`` the standard library and NumPy, ``torch`` the functions that torch adds in Python. Begin with
``builtins.builtin_functions``.
"""

from typing import Final

from fxstack_capture.trace.rule_registry import Registry

RULES: Final = Registry()
