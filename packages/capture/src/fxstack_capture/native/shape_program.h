/* Boolean expressions over sizes, as a postfix program: see shape_program.c. */
#ifndef FXSTACK_SHAPE_PROGRAM_H
#define FXSTACK_SHAPE_PROGRAM_H
#include "tree.h"
/* arguments: (program,), a tuple of (operation: str, operand: int or float) pairs as guards/shape.py writes them */
HIDDEN int shape_build(Tree *tree, Test *test, PyObject *arguments);
#endif
