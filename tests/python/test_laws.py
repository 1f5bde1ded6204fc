"""What must hold of attention: it is the KL-closest of its kind to softmax, prefix rows are those of cut trees, the
energy's gradient is attention, and the mass of nodes sums the matrix."""

import math

import pytest
import torch

import dense
import ramify
from ramify import Forest
from random_trees import IMPLEMENTATIONS, MODES, Case, applies, dtype_of, mode_name, random_case, tolerance

both = pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
every_mode = pytest.mark.parametrize("mode", MODES, ids=mode_name)
SMALL = {"num_trees": 1, "heads": 1, "depth": 3, "width": 3, "max_leaves": 7}


def flat_log_softmax(head: dense.Head, root: dense.Node) -> torch.Tensor:
    """Log of the softmax that the hierarchy approximates, -inf where a leaf may not look. Siblings that are ancestors
    of i and j give their position vectors."""
    leaves = len(head.q)
    scores = torch.full((leaves, leaves), -torch.inf, dtype=torch.float64)

    def visit(node):
        if not node.children and head.include_self:
            scores[node.leaves[0], node.leaves[0]] = head.self_score(node)
        for c, a in enumerate(node.children):
            for b in head.siblings(node.children, c):
                for i in a.leaves:
                    for j in b.leaves:
                        scores[i, j] = head.scale * head.q[i] @ head.k[j] + head.eps[a.number] @ head.eps[b.number]
            visit(a)

    visit(root)
    return scores.log_softmax(1)


def holds_mass(node, include_self):
    """Whether leaves below a node have anything below it to attend to."""
    if not node.children:
        return include_self
    return len(node.children) > 1 or holds_mass(node.children[0], include_self)


class TiedMatrices:
    """All row-stochastic matrices that are constant on blocks of siblings: free logits at every node over staying
    below it and each visible sibling."""

    def __init__(self, head, root):
        self.head, self.root, self.logits = head, root, {}
        for node in dense.all_nodes([root]):
            for c, child in enumerate(node.children):
                choices = len(head.siblings(node.children, c)) + holds_mass(child, head.include_self)
                self.logits[child.number] = torch.zeros(choices, dtype=torch.float64, requires_grad=True)

    def parameters(self):
        return [logits for logits in self.logits.values() if len(logits) > 1]

    def log_matrix(self):
        leaves, rows = len(self.head.q), {}

        def visit(node, row):
            if not node.children:
                if self.head.include_self:
                    row = {**row, node.leaves[0]: row["stay"]}
                rows[node.leaves[0]] = {j: value for j, value in row.items() if j != "stay"}
            for c, child in enumerate(node.children):
                siblings = self.head.siblings(node.children, c)
                weights = self.logits[child.number].log_softmax(0)
                here, stays = dict(row), holds_mass(child, self.head.include_self)
                for weight, b in zip(weights[int(stays):], siblings):
                    here.update({j: row["stay"] + weight - math.log(len(b.leaves)) for j in b.leaves})
                here["stay"] = row["stay"] + weights[0] if stays else torch.tensor(-torch.inf)
                visit(child, here)

        visit(self.root, {"stay": torch.tensor(0.0, dtype=torch.float64)})
        absent = torch.tensor(-torch.inf, dtype=torch.float64)
        return torch.stack([torch.stack([rows[i].get(j, absent) for j in range(leaves)]) for i in range(leaves)])


class UntiedMatrices:
    """The same, with rows free: every leaf has its own logits over itself and the siblings of its ancestors."""

    def __init__(self, head, root):
        self.blocks = {}  # leaf -> lists of leaves with one weight

        def visit(node, blocks):
            if not node.children:
                self.blocks[node.leaves[0]] = blocks + ([node.leaves] if head.include_self else [])
            for c, child in enumerate(node.children):
                visit(child, blocks + [b.leaves for b in head.siblings(node.children, c)])

        visit(root, [])
        self.logits = {i: torch.zeros(len(b), dtype=torch.float64, requires_grad=True)
                       for i, b in self.blocks.items()}

    def parameters(self):
        return list(self.logits.values())

    def log_matrix(self):
        rows = []
        for i in range(len(self.blocks)):
            row = [torch.tensor(-torch.inf, dtype=torch.float64)] * len(self.blocks)
            for weight, block in zip(self.logits[i].log_softmax(0), self.blocks[i]):
                for j in block:
                    row[j] = weight - math.log(len(block))
            rows.append(torch.stack(row))
        return torch.stack(rows)


def divergence(log_matrix, log_target):
    """The sum of KL(row || target row); where either has no mass neither counts."""
    there = log_matrix > -torch.inf
    log_p, log_t = log_matrix[there], log_target[there]
    return (log_p.exp() * (log_p - log_t)).sum()


def minimise(matrices, log_target):
    optimiser = torch.optim.LBFGS(matrices.parameters(), max_iter=400, tolerance_grad=1e-11, tolerance_change=1e-15,
                                  line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = divergence(matrices.log_matrix(), log_target)
        loss.backward()
        return loss

    optimiser.step(closure)
    with torch.no_grad():
        return matrices.log_matrix().exp(), divergence(matrices.log_matrix(), log_target).item()


def interesting_cases(mode, count, dtype=torch.float64):
    """Small single trees with at least one inner family of two."""
    seed = 0
    while count > 0:
        case = random_case(seed, mode, dtype=dtype, **SMALL)
        if case.forest.num_leaves >= 4 and case.forest.depth >= 2:
            count -= 1
            yield case
        seed += 1


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode["causal"] != "prefix"], ids=mode_name)
@pytest.mark.slow
def test_no_matrix_of_its_kind_is_closer_to_softmax(mode):
    for case in interesting_cases(mode, 4):
        (head,), (root,) = dense.heads_of(case), dense.parse(case.trees)
        log_target = flat_log_softmax(head, root)
        matrices = (UntiedMatrices if mode["tie"] == "none" else TiedMatrices)(head, root)
        best, least = minimise(matrices, log_target)
        for implementation in IMPLEMENTATIONS:
            if not applies(implementation, mode):
                continue
            given = case.to(dtype_of(implementation))
            ours = ramify.attention_matrix(given.q, given.k, given.forest, implementation=implementation,
                                           **given.options).squeeze(1).double()
            atol = tolerance(implementation, 1e-9)
            torch.testing.assert_close(ours.sum(1), torch.ones(len(ours), dtype=torch.float64), rtol=0, atol=atol)
            assert divergence(ours.log(), log_target).item() <= least + atol
            torch.testing.assert_close(ours, best, rtol=0, atol=1e-4)


@both
@pytest.mark.parametrize("alpha", [None, 1.5])
def test_prefix_row_is_the_last_row_of_the_tree_cut_there(alpha, implementation):
    mode = {"tie": "block", "causal": "prefix", "include_self": True}
    if not applies(implementation, mode, alpha):
        pytest.skip("the fused kernels know no alpha")
    for case in interesting_cases(mode, 5, dtype_of(implementation)):
        options = {**case.options, "implementation": implementation, **({"alpha": alpha} if alpha else {})}
        matrix = ramify.attention_matrix(case.q, case.k, case.forest, **options)
        for i in range(case.forest.num_leaves):
            kept = (case.forest.first_leaf <= i).nonzero().squeeze(1)
            renumber = torch.full((case.forest.num_nodes + 1,), -1)
            renumber[kept] = torch.arange(len(kept))
            cut = Forest.from_parents(renumber[case.forest.parents[kept]])
            index = torch.empty_like(kept)
            index[cut.input_nodes] = case.options["position_index"][kept]
            row = ramify.attention_matrix(case.q[:i + 1], case.k[:i + 1], cut,
                                          **{**options, "causal": "block", "position_index": index})[-1]
            torch.testing.assert_close(matrix[i, :, :i + 1], row, rtol=0, atol=tolerance(implementation, 1e-12))
            assert (matrix[i, :, i + 1:] == 0).all()


@both
def test_prefix_outputs_never_depend_on_later_leaves(implementation):
    for tie, causal in (("block", "prefix"), ("none", "prefix"), ("none", "block")):
        mode = {"tie": tie, "causal": causal, "include_self": True}
        if not applies(implementation, mode):
            continue
        case = random_case(21, mode, num_trees=1, depth=4, max_leaves=40, dtype=dtype_of(implementation))
        out = ramify.attention(case.q, case.k, case.v, case.forest, implementation=implementation, **case.options)
        middle = case.forest.num_leaves // 2
        later = [x.clone() for x in (case.q, case.k, case.v)]
        for x in later:
            x[middle:] = 5 - 3 * x[middle:]
        changed = ramify.attention(*later, case.forest, implementation=implementation, **case.options)
        if implementation == "fused":
            assert torch.equal(changed[:middle], out[:middle])
        torch.testing.assert_close(changed[:middle], out[:middle], rtol=0, atol=1e-13)
        assert not torch.allclose(changed[middle:], out[middle:])


@both
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode["causal"] != "prefix" or mode["tie"] == "none"],
                         ids=mode_name)
@pytest.mark.parametrize("alpha", [None, 1.4])
def test_attention_is_the_gradient_of_the_energy(alpha, mode, implementation):
    for seed in range(4):
        case = random_case(seed, mode, alpha=alpha, heads=2, key_heads=2, dtype=dtype_of(implementation))
        options = {**case.options, "implementation": implementation, "scale": 0.8}
        q = case.q.clone().requires_grad_()
        energy = ramify.energy(q, case.k, case.forest, **options)
        (gradient,) = torch.autograd.grad(energy[energy > -torch.inf].sum(), q)
        leaves = case.forest.tree_leaf_begin.diff().repeat_interleave(case.forest.tree_leaf_begin.diff())
        out = ramify.attention(case.q, case.k, case.k, case.forest, **options)
        torch.testing.assert_close(gradient * leaves[:, None, None] / 0.8, out, rtol=0,
                                   atol=tolerance(implementation, 1e-10))


@both
@every_mode
@pytest.mark.parametrize("alpha", [None, 1.5])
@pytest.mark.slow
def test_mass_of_nodes_sums_the_matrix(alpha, mode, implementation):
    near = {"rtol": 0, "atol": tolerance(implementation, 1e-12, 1e-6)}
    for seed in (3, 7):
        case: Case = random_case(seed, mode, alpha=alpha, heads=4, key_heads=2, dtype=dtype_of(implementation))
        options = {**case.options, "implementation": implementation}
        matrix = ramify.attention_matrix(case.q, case.k, case.forest, **options)  # [T, H, T]
        nodes = dense.all_nodes(dense.parse(case.trees))
        by_node = torch.stack([matrix[:, :, node.leaves].sum(2) for node in nodes], 1)  # [T, nodes, H]
        for leaf in range(case.forest.num_leaves):
            mass = ramify.node_mass(case.q, case.k, case.forest, leaf, **options)
            torch.testing.assert_close(mass, by_node[leaf], **near)
        begin = case.forest.tree_leaf_begin.tolist()
        mean = sum(by_node[i:j].mean(0) for i, j in zip(begin, begin[1:]) if j > i)
        torch.testing.assert_close(ramify.node_mass(case.q, case.k, case.forest, **options), mean, **near)


@both
@every_mode
def test_a_unary_node_changes_nothing(mode, implementation):
    trees = [["a", ["b", ["c", "d"]]]]
    wrapped = [[["a"], [[["b", [["c", "d"]]]]]]]
    q, k, v = (torch.randn(4, 2, 3, dtype=dtype_of(implementation), generator=torch.Generator().manual_seed(s))
               for s in range(3))
    for alpha in (1.0, 1.7)[:1 if implementation == "fused" else 2]:
        options = {**mode, "alpha": alpha, "implementation": implementation}
        expected = ramify.attention(q, k, v, Forest.from_nested(trees), **options)
        out = ramify.attention(q, k, v, Forest.from_nested(wrapped), **options)
        torch.testing.assert_close(out, expected, rtol=0, atol=tolerance(implementation, 1e-13, 0))


@both
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode["causal"] == "none"], ids=mode_name)
def test_permuting_siblings_permutes_nothing_else(mode, implementation):
    order = [4, 2, 3, 0, 1, 5]  # leaves of the second tree as leaves of the first
    q, k, v = (torch.randn(6, 2, 3, dtype=dtype_of(implementation), generator=torch.Generator().manual_seed(s))
               for s in range(3))
    options = {**mode, "implementation": implementation}
    out = ramify.attention(q, k, v, Forest.from_nested([[["a", "b"], [["c", "d"], "e"], "f"]]), **options)
    permuted = ramify.attention(q[order], k[order], v[order],
                                Forest.from_nested([[["e", ["c", "d"]], ["a", "b"], "f"]]), **options)
    torch.testing.assert_close(permuted, out[order], rtol=0, atol=tolerance(implementation, 1e-13, 1e-6))
