"""The template of attention: kernels that hold one tile of scores at a time, for ``flex_attention`` and its gradients.

``rules`` lowers the operators to calls, ``kernel`` builds the kernel of a call, with the roles of ``records``; ``tiling``
and ``writer`` divide and write the kernel. Begin with ``template``.
"""
