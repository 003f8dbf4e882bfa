"""Rules of torch functions that are more than operators.

The rules cover modules, checkpoints, transforms, wrappers of torch's own compiler, and queries about the
compiler. Operators need no rule here, because ``torch_side`` records them. Begin with ``modules``.
"""
