"""Rules of torch functions that are more than operators.

Modules, checkpoints, transforms, wrappers of torch's own compiler, and questions that a program asks about
the compiler. Operators need no rule here: ``torch_side`` records them. Begin with ``modules``.
"""
