"""Run a call: choose a rule, the interpreter, torch's recorder or CPython.

``dispatch`` chooses. ``rules`` holds the rules of library functions. ``policy`` lists the C code that may run
for real and ``native_run`` runs it. ``polyfills`` replaces C code that calls functions of the program. The
folder imports ``objects``, ``torch_side`` and ``interpreter``. Begin with ``dispatch``.
"""
