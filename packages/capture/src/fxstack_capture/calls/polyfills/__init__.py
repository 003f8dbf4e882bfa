"""Requests: calls of Python functions that do the work of C code that calls functions of the program.

A *request* is a Python function (of ``interpreter.polyfills``, or of the program) with its arguments. A
request exists only if the C code would call a Python function that the interpreter can run. Otherwise the C
code itself runs. Only a trace that has found a graph break below C code asks for requests.
"""
