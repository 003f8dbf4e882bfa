"""The two intermediate representations (IRs) of the compiler, and integer index expressions.

Tensor-level IR: ``nodes`` (one node per tensor) and ``ordered`` (scatters, scans). Loop-level IR: ``kernel``
(fused loops). Both use ``expr`` and ``atoms`` for sizes, strides and addresses. ``scalar_ops`` is the table
of scalar operations. Modules here import only ``errors`` and torch; every other folder of the package may
import them. Begin with ``expr``, then ``nodes`` and ``kernel``.
"""
