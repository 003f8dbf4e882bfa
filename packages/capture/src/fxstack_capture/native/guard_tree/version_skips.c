/* Tests and children that a check skips, because the dictionary on which they depend is unchanged.
 *
 * CPython numbers the states of dictionaries (object_compat.h, dict_version). If a node's dictionary has the
 * same number as at the time when all tests held, its keys and values are still the same objects. They are
 * alive, because the dictionary holds them. Therefore
 *
 * - tests of keys (also tests that there are no keys) hold, and the check skips them;
 * - the check does not look up children that are entries of the dictionary: they are the same objects;
 * - the check skips children that are only tested for identity, or for the value of a constant.
 *
 * An object can change some properties without changing its dictionary: its class, its own dictionary, metadata
 * of tensors, the length of lists, emptiness of hook tables. The check tests these every time. The numbers are
 * unique in the process, so a number also identifies the dictionary. */
#include "guard_tree.h"

static Dictionary kind_of_child(const Node *child) {
    return is_instance_attr(child) ? DICT_OF_INSTANCE : is_key(child) ? DICT_OWN : DICT_NONE;
}

static Dictionary deciding(const Node *node) {
    Dictionary found = DICT_NONE;
    for (int i = 0; i < node->test_count; i++)
        if (node->tests[i].depends_on > found) found = node->tests[i].depends_on;
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

static int can_skip_test(const Node *node, const Test *test) {
    return test->depends_on == node->skip_dict && node->skip_dict != DICT_NONE && test->again == NULL;
}

static int can_skip_child(const Node *node, const Node *child) {
    return child->follows != DICT_NONE && child->follows == node->skip_dict && is_constant_leaf(child);
}

/* Moves the tests that a check may skip to the end, in place. Returns the number of the other tests. */
static int sort_tests(Node *node) {
    int open = 0;
    for (int i = 0; i < node->test_count; i++) {
        if (can_skip_test(node, &node->tests[i])) continue;
        Test test = node->tests[i];
        memmove(&node->tests[open + 1], &node->tests[open], (i - open) * sizeof test);
        node->tests[open++] = test;
    }
    return open;
}

static int sort_children(Node *node) {
    int open = 0;
    for (int i = 0; i < node->child_count; i++) {
        if (can_skip_child(node, &node->children[i])) continue;
        Node child = node->children[i];
        memmove(&node->children[open + 1], &node->children[open], (i - open) * sizeof child);
        node->children[open++] = child;
    }
    return open;
}

void node_plan_skips(Node *node) {
    node->skip_dict = deciding(node);
    for (int i = 0; i < node->child_count; i++) {
        Dictionary kind = kind_of_child(&node->children[i]);
        node->children[i].follows = kind == node->skip_dict ? kind : DICT_NONE;
    }
    node->open_tests = sort_tests(node);
    node->open_children = sort_children(node);
}
