"""Tracebacks that show the program's lines in place of generated code, for errors of compiled graphs."""
