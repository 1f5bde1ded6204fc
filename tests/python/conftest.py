"""Configuration of the Python suite: the marker of slow tests, modes that an implementation lacks, devices."""

import pytest
import torch

from random_trees import applies


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes more than about 5 seconds; left out by -m 'not slow'")
    torch.set_num_threads(1)  # thousands of operations on small tensors: more threads only wait for each other


def pytest_collection_modifyitems(items):
    """Leaves out what tests that take any implementation and any mode would ask of the fused kernels in vain."""
    def is_wanted(item):
        given = item.callspec.params if hasattr(item, "callspec") else {}
        mode = {"causal": given.get("causal"), **(given.get("mode") or {})}
        return applies(given.get("implementation"), mode, given.get("alpha"))

    items[:] = [item for item in items if is_wanted(item)]


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return request.param
