"""Operators that call functions: branches, loops, shared regions.

``graphs`` finds the functions of a call, and equal functions by their structure; ``calls`` lowers a call to a loop or
branch of the host program, with results in planned memory. Modules here import ``ir`` and the helpers of ``lower`` about
layouts and numbers. Begin with ``calls``.
"""
