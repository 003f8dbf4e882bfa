"""Requests: calls of Python functions that do the work of C code that calls functions of the program.

A *request* is a Python function (of ``polyfill``, or of the program) with its arguments. A request exists
only if the C code would call a Python function that the interpreter can run; otherwise the C code runs. Only
traces that found a graph break below C code ask for requests.
"""
