/* Boolean expressions over sizes, as a postfix program: see shape_program.c. */
#ifndef FXSTACK_SHAPE_PROGRAM_H
#define FXSTACK_SHAPE_PROGRAM_H
#include "tree.h"
/* arguments: (program,). guards/shape.py makes program, a tuple of pairs (operation: str, operand: int or
 * float). */
HIDDEN int shape_build(Tree *tree, Test *test, PyObject *arguments);
#endif
