"""Puts the collector into this Python process: `ttrace collect` sets PYTHONPATH to this folder, and Python imports
`sitecustomize` when it starts, in every process below the command.

Nothing but a hook is installed here. The collector itself is loaded when the program imports torch, right after
torch's own modules have run and before the program goes on; a process without torch pays for two small imports. An
older Python may run this file: it has fewer types than the rest of the package."""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def install_now() -> None:
    """For a process that began with torch in it (a fork of a server, say): nobody will import torch there."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _AfterTorch)]
    _install_collector()


def _run_users_sitecustomize() -> None:
    """Python imports one `sitecustomize` only, and found this one first: imports the one that it would have found. Our
    folder leaves this process's path; children inherit PYTHONPATH and find us there again."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    ours = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401 (imported for what it does)
    except ImportError as error:
        if error.name != "sitecustomize":
            raise  # the user's own file has a broken import: Python reports it as it would without us
    finally:
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


class _AfterTorch:
    """A finder that finds nothing itself: for `torch` it asks the others, and has the collector installed as soon
    as the module has run. Programs also look for torch without importing it, so the finder stays until the import."""

    def __init__(self) -> None:
        self.asking = False

    def find_spec(self, fullname, path=None, target=None):
        if fullname != "torch" or self.asking:
            return None
        import importlib.util

        self.asking = True
        try:
            spec = importlib.util.find_spec("torch")
        finally:
            self.asking = False
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader.exec_module = self._run_and_install(spec.loader.exec_module)
        return spec

    def _run_and_install(self, run_module):
        def exec_module(module):
            run_module(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                _install_collector()

        return exec_module


def _install_collector() -> None:
    try:
        import importlib.util

        module = sys.modules.get("ttrace_torch")  # of a program that found it by itself
        if module is None:
            package = os.path.dirname(_HERE)
            spec = importlib.util.spec_from_file_location(
                "ttrace_torch", os.path.join(package, "__init__.py"), submodule_search_locations=[package]
            )
            module = importlib.util.module_from_spec(spec)
            sys.modules["ttrace_torch"] = module
            spec.loader.exec_module(module)
        module.install()
    except Exception as error:  # never the reason why a training job dies
        print(f"ttrace: the collector could not be installed: {error!r}", file=sys.stderr)


if os.environ.get("TTRACE_CONFIG"):
    sys.meta_path.insert(0, _AfterTorch())
_run_users_sitecustomize()
