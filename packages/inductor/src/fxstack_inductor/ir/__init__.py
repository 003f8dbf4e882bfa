"""The two intermediate representations (IRs) of the compiler, and integer index expressions.

Tensor-level IR: ``nodes`` (one node per tensor) and ``ordered`` (scatters, scans). Loop-level IR: ``kernel``
(fused loops), and ``analysis`` (levels and passes of a kernel's values). Both use ``expr`` for sizes, strides
and addresses. ``scalar_ops`` is the table of scalar operations; ``verify`` checks, ``printer`` prints.
Modules here import only ``errors`` and ``fxstack_interchange``; all other folders may import them. Begin with
``expr``, then ``nodes`` and ``kernel``.
"""
