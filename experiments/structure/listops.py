"""Makes ListOps expressions as Nangia and Bowman (2018) do, for training sets: their test files are given.

A place holds an operator with a fixed probability, else a digit; an operator has 2 to 5 arguments, and at the largest
depth there are digits only. Expressions are all different, as theirs are, and none is in the test file.
"""

import json
import random

OPERATORS = ("MIN", "MAX", "MED", "SM")
MOST_ARGUMENTS, LARGEST_DEPTH, OPERATOR_PROBABILITY = 5, 20, 0.25
DISTINCT = 100_000  # how many of them are short depends on how many different ones there are


def expression(pick, depth=1):
    if depth >= LARGEST_DEPTH or pick.random() > OPERATOR_PROBABILITY:
        return pick.randrange(10)
    arguments = [expression(pick, depth + 1) for _ in range(pick.randint(2, MOST_ARGUMENTS))]
    return [pick.choice(OPERATORS), *arguments]


def value(tree):
    if not isinstance(tree, list):
        return tree
    values = sorted(value(argument) for argument in tree[1:])
    middle = len(values) // 2
    median = values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) // 2
    return {"MIN": values[0], "MAX": values[-1], "MED": median, "SM": sum(values) % 10}[tree[0]]


def sequence(tree):
    """The same without nesting, as a transformer reads it: each operator opens a bracket, which is closed behind."""
    if not isinstance(tree, list):
        return [str(tree)]
    inside = [token for argument in tree[1:] for token in sequence(argument)]
    return ["[" + tree[0], *inside, "]"]


def record(tree):
    """All leaves are strings, so that digits are symbols as operators are. A digit alone is a family of one."""
    def named(part):
        return [named(child) for child in part] if isinstance(part, list) else str(part)

    return {"label": str(value(tree)), "expr": named(tree if isinstance(tree, list) else [tree]),
            "sequence": sequence(tree)}


def training_records(unwanted, seed=0, distinct=DISTINCT):
    """Records in random order, without those whose expression (as JSON) is unwanted."""
    pick = random.Random(seed)
    made = {}
    while len(made) < distinct:
        tree = expression(pick)
        made[json.dumps(tree)] = tree
    trees = [tree for text, tree in made.items() if text not in unwanted]
    pick.shuffle(trees)
    return [record(tree) for tree in trees]
