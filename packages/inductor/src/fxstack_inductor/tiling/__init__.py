"""Tiles of GPU kernels: which loops a tile spans, its sizes, warps and pipelined loads.

``tiles`` divides plain nests of loops (templates divide their own kernels); ``kernels`` has the records of written
kernels. Modules here import ``ir``, ``errors`` and ``schedule.loops``. Begin
with ``tiles``.
"""
