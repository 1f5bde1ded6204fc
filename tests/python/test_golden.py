"""Every case and mode of tests/data/attention_golden.json, by all implementations."""

import json
import pathlib
from collections import deque

import pytest
import torch

import ramify
from random_trees import IMPLEMENTATIONS, applies, dtype_of, tolerance

GOLDEN = json.loads((pathlib.Path(__file__).parent.parent / "data" / "attention_golden.json").read_text())["cases"]
CAUSAL = {"block_causal": "block", "prefix_causal": "prefix"}
NUM_MODES = 10
WITH_GRADIENTS = [i for i, case in enumerate(GOLDEN) if any("grad_q" in mode for mode in case["modes"])]  # small trees


def options_of(mode):
    options = dict(mode["options"])
    if "mask" in options:
        options["causal"] = CAUSAL[options.pop("mask")]
    return options


def forest_and_positions(tree):
    """The forest and the position vector of every node, [nodes, dp], in node order: breadth first."""
    def nested(node):
        return [nested(child) for child in node["children"]] if "children" in node else node["leaf"]

    nodes, queue = [], deque([tree])
    while queue:
        nodes.append(queue.popleft())
        queue.extend(nodes[-1].get("children", []))
    width = max((len(node["eps"]) for node in nodes if "eps" in node), default=1)
    positions = [node.get("eps", [0.0] * width) for node in nodes]
    return ramify.Forest.from_nested([nested(tree)]), torch.tensor(positions, dtype=torch.float64)


def run(case, mode, implementation, dtype):
    """(out, leaf inputs that require gradients) of one golden mode."""
    forest, positions = forest_and_positions(case["tree"])
    inputs = {name: torch.tensor(case[name], dtype=dtype).unsqueeze(1).requires_grad_() for name in "qkv"}
    out = ramify.attention(**inputs, forest=forest, positions=positions.to(dtype).unsqueeze(1),
                           position_index=torch.arange(forest.num_nodes), implementation=implementation,
                           **options_of(mode))
    return out, inputs


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("index", range(len(GOLDEN)))
def test_golden_outputs(index, implementation):
    case = GOLDEN[index]
    assert len(case["modes"]) == NUM_MODES
    for mode in case["modes"]:
        options = options_of(mode)
        if not applies(implementation, options, options.get("alpha")):
            continue
        expected = torch.tensor(mode["out"], dtype=torch.float64).unsqueeze(1)
        out, _ = run(case, mode, implementation, dtype_of(implementation))
        atol = tolerance(implementation, 1e-9, 1e-5 * expected.abs().max().item())
        torch.testing.assert_close(out.double(), expected, rtol=0, atol=atol,
                                   msg=lambda m: f"{mode['options']}: {m}")
        single, _ = run(case, mode, implementation, torch.float32)
        error = (single.double() - expected).abs().max().item()
        # Relative to the largest output: single entries may cancel to nothing.
        assert error <= 1e-4 * expected.abs().max().item(), mode["options"]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("index", WITH_GRADIENTS)
def test_golden_gradients(index, implementation):
    case = GOLDEN[index]
    for mode in case["modes"]:
        options = options_of(mode)
        if "grad_q" not in mode or not applies(implementation, options, options.get("alpha")):
            continue
        out, inputs = run(case, mode, implementation, dtype_of(implementation))
        out.backward(torch.tensor(case["grad_out"], dtype=out.dtype).unsqueeze(1))
        largest = max(torch.tensor(mode[f"grad_{name}"]).abs().max().item() for name in inputs)
        for name, tensor in inputs.items():
            expected = torch.tensor(mode[f"grad_{name}"], dtype=torch.float64).unsqueeze(1)
            # Central differences leave about 1e-10 where the true gradient is zero.
            atol = tolerance(implementation, max(1e-6 * expected.abs().max().item(), 1e-9), 1e-5 * largest + 1e-7)
            torch.testing.assert_close(tensor.grad.double(), expected, rtol=0, atol=atol,
                                       msg=lambda m: f"{mode['options']}, {name}: {m}")


def test_the_file_holds_what_it_should():
    assert len(GOLDEN) == 60
    assert sum("grad_q" in mode for case in GOLDEN for mode in case["modes"]) > 300
