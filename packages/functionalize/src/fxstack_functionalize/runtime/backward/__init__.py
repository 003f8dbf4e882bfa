"""The backward of a compiled training graph under autograd.

``saved`` keeps tensors as eager keeps them, ``backwards`` compiles a backward for each set of results that
have no gradient. ``sequential_backward``, ``components``, ``edge_gradients`` and ``double_backward`` serve
programs that differentiate results one after the other, look at gradients between results, or differentiate
gradients. Begin with ``saved``.
"""
