"""Makes ListOps expressions as Nangia and Bowman (2018) do, for training sets: their test files are given.

A place holds an operator with a fixed probability, else a digit; an operator has 2 or more arguments, and at the largest
depth there are digits only. Expressions are all different, as theirs are, and none is in the test file.
"""

import json
import random

# By test file: operators, most arguments, largest depth, probability of an operator. The probability of d20 is the one that
# gives the depths and lengths of its test file; the others are theirs.
KINDS = {"d20s": (("MIN", "MAX", "MED", "SM"), 5, 20, 0.25),
         "d20": (("MIN", "MAX", "FIRST", "LAST"), 3, 20, 0.36),
         "d8": (("MIN", "MAX", "FIRST", "LAST"), 3, 8, 0.25)}
DISTINCT = 100_000  # how many of them are short depends on how many different ones there are


def expression(kind, pick, depth=1):
    operators, most_arguments, largest_depth, probability = KINDS[kind]
    if depth >= largest_depth or pick.random() > probability:
        return pick.randrange(10)
    arguments = [expression(kind, pick, depth + 1) for _ in range(pick.randint(2, most_arguments))]
    return [pick.choice(operators), *arguments]


def value(tree):
    if not isinstance(tree, list):
        return tree
    values = [value(argument) for argument in tree[1:]]
    ordered, middle = sorted(values), len(values) // 2
    median = ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) // 2
    return {"MIN": ordered[0], "MAX": ordered[-1], "MED": median, "SM": sum(values) % 10, "FIRST": values[0],
            "LAST": values[-1]}[tree[0]]


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


def training_records(kind, unwanted, seed=0, distinct=DISTINCT):
    """Records in random order, without those whose expression (as JSON) is unwanted."""
    pick = random.Random(seed)
    made = {}
    while len(made) < distinct:
        tree = expression(kind, pick)
        made[json.dumps(tree)] = tree
    trees = [tree for text, tree in made.items() if text not in unwanted]
    pick.shuffle(trees)
    return [record(tree) for tree in trees]
