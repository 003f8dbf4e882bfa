/* What a check need not ask again: everything that follows from a dictionary which is as it was.
 *
 * CPython numbers the states of dictionaries (object_compat.h, dict_version). Where a node's dictionary has the number that it had
 * when all its tests held, its keys and the objects behind them are the same, and alive, since the dictionary holds them. So
 *   - tests of keys (also: that there are none) hold, and are skipped;
 *   - children that are entries of the dictionary are the objects of then, and are not looked up;
 *   - children about which only their identity, or the value of a constant, is asked are skipped.
 * What an object may change without its dictionary is asked again each time: its class, its own dictionary, metadata of tensors, the
 * length of lists, emptiness of tables of hooks. The numbers are a process's, so a number says which dictionary it is, too. */
#include "tree.h"

static Dictionary kind_of_child(const Node *child) {
    return is_instance_attr(child) ? DICT_OF_INSTANCE : is_key(child) ? DICT_OWN : DICT_NONE;
}

static Dictionary deciding(const Node *node) {
    Dictionary found = DICT_NONE;
    for (int i = 0; i < node->test_count; i++)
        if (node->tests[i].settled_by > found) found = node->tests[i].settled_by;
    for (int i = 0; i < node->child_count; i++)
        if (kind_of_child(&node->children[i]) > found) found = kind_of_child(&node->children[i]);
    return found;
}

int is_constant_leaf(const Node *node) {
    if (node->child_count > 0 || node->register_index >= 0) return 0;
    for (int i = 0; i < node->test_count; i++)
        if (!node->tests[i].of_constant) return 0;
    return 1;
}

static int is_settled_test(const Node *node, const Test *test) {
    return test->settled_by == node->settles && node->settles != DICT_NONE && test->again == NULL;
}

static int is_settled_child(const Node *node, const Node *child) {
    return child->follows != DICT_NONE && child->follows == node->settles && is_constant_leaf(child);
}

/* Moves what is settled behind what is not, in place; how much is not. */
static int sort_tests(Node *node) {
    int open = 0;
    for (int i = 0; i < node->test_count; i++) {
        if (is_settled_test(node, &node->tests[i])) continue;
        Test test = node->tests[i];
        memmove(&node->tests[open + 1], &node->tests[open], (i - open) * sizeof test);
        node->tests[open++] = test;
    }
    return open;
}

static int sort_children(Node *node) {
    int open = 0;
    for (int i = 0; i < node->child_count; i++) {
        if (is_settled_child(node, &node->children[i])) continue;
        Node child = node->children[i];
        memmove(&node->children[open + 1], &node->children[open], (i - open) * sizeof child);
        node->children[open++] = child;
    }
    return open;
}

void node_settle(Node *node) {
    node->settles = deciding(node);
    for (int i = 0; i < node->child_count; i++) {
        Dictionary kind = kind_of_child(&node->children[i]);
        node->children[i].follows = kind == node->settles ? kind : DICT_NONE;
    }
    node->open_tests = sort_tests(node);
    node->open_children = sort_children(node);
}
