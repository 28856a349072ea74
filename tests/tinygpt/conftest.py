import torch
import torch._dynamo

# Runs are forked from this process: a thread pool started here would be missing in them.
torch.set_num_threads(1)


def pytest_addoption(parser):
    parser.addoption("--all-layouts", action="store_true", help="every layout, not only the first two of each test")


def pytest_collection_modifyitems(config, items):
    """Layouts are many and each starts processes; tools/sweep runs them as well. Of each test the first two are run."""
    if config.getoption("--all-layouts"):
        return
    kept, seen = [], {}
    for item in items:
        starts_ranks = not item.path.name.startswith(("test_tinygpt_command_line", "test_training_data"))
        test = (item.path, getattr(item, "originalname", item.name))
        seen[test] = seen.get(test, 0) + 1
        if not starts_ranks or seen[test] <= 2:
            kept.append(item)
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
