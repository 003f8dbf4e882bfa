"""Rules of torch functions that are more than operators.

The rules cover modules, optimizers, checkpoints, transforms, graphs of compiled autograd, wrappers of torch's own
compiler, and functions that control or ask a compiler. Operators need no rule here, because ``torch_side`` records them.
Begin with ``modules``.
"""
