"""Configuration of the Python suite: the marker of slow tests and the devices that tests run on."""

import pytest
import torch


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes more than about 5 seconds; left out by -m 'not slow'")
    torch.set_num_threads(1)  # thousands of operations on small tensors: more threads only wait for each other


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return request.param
