"""Where an error of a compiled graph comes from: the lines of the program in place of those of generated code."""
