"""Which Python function (of ``polyfill``, or the program's own) does what C code would do with a function of the program.

A *request* is such a function with its arguments. There is one only where the C code would call a Python function that
the interpreter could run; anything else stays with C. Only traces that found a graph break below C code ask.
"""
