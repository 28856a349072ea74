import pytest
import torch
import torch._dynamo

# Runs are forked from this process: a thread pool started here would be missing in them.
torch.set_num_threads(1)


def pytest_collection_modifyitems(items):
    """Layouts are many and each starts processes: of each test the first is run every time."""
    seen = set()
    for item in items:
        starts_ranks = not item.path.name.startswith(("test_tinygpt_command_line", "test_training_data"))
        test = (item.path, getattr(item, "originalname", item.name))
        if starts_ranks and test in seen:
            item.add_marker(pytest.mark.nightly)
        seen.add(test)
