"""One thread per test: the machine is shared, and the order of sums must not depend on how many cores it has."""

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
