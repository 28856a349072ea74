"""What optimizers did with the parameters, as the trace itself says it: `OptimizerStep` in src/base/trace.h has
the format."""

from typing import NamedTuple

from .names import recordable

_MOST_NAMES = 1_000_000  # a reader takes no more, those of all steps together: kMaxNamesInSteps


class StepFacts(NamedTuple):
    """Of one parameter in one iteration."""

    optimizer: str  # the class with its module; "" where no optimizer has the parameter
    options: tuple[tuple[str, float], ...]
    step: float | None
    calls: int
    clip_factor: float | None
    master: str
    changed_after: bool
    # Those that are others where the program goes on; None: it does not go on, or nobody knows.
    options_after: tuple[tuple[str, float], ...] | None = None


class OptimizerSteps:
    def __init__(self) -> None:
        self._names: dict[tuple[int, int, StepFacts], list[str]] = {}  # by iteration, chunk and facts
        self._count = 0
        self._unstepped: dict[int, dict] = {}  # by the optimizer's id
        # Parameters that want gradients, by chunk and name, and their optimizers: class, number and group (trained.py).
        self.trained: dict[tuple[int, str], tuple[str | None, int, int]] = {}

    def add(self, iteration: int, chunk: int, facts: StepFacts, name: str) -> bool:
        """Returns whether there was room for it."""
        if self._count == _MOST_NAMES:
            return False
        self._count += 1
        self._names.setdefault((iteration, chunk, facts), []).append(recordable(name))
        return True

    def add_unstepped(self, key: int, optimizer: str, parameters: int) -> None:
        """An optimizer, with the number of its parameters, that has not stepped in a recorded iteration."""
        self._unstepped[key] = {"optimizer": optimizer, "parameters": parameters}

    def has_stepped(self, key: int) -> None:
        """It has in one of them, after all."""
        self._unstepped.pop(key, None)

    def clear(self) -> None:
        self._names.clear()
        self._unstepped.clear()
        self.trained = {}
        self._count = 0

    def as_document(self) -> dict:
        """Empty where nothing was added."""
        lists: dict[tuple[str, ...], int] = {}
        steps = []
        for (iteration, chunk, facts), names in self._names.items():
            step = {
                "iteration": iteration,
                "chunk": chunk,
                "parameters": lists.setdefault(tuple(names), len(lists)),
                "optimizer": facts.optimizer,
                "step": facts.step,
                "calls": facts.calls,
                "clip_factor": facts.clip_factor,
                "master": facts.master or None,
                "changed_after": facts.changed_after or None,
                "options": dict(facts.options),
                "options_after": None if facts.options_after is None else dict(facts.options_after),
            }
            steps.append({key: value for key, value in step.items() if value is not None})
        trained = self._list_trained(lists)
        document = {"parameters": [list(names) for names in lists], "steps": steps}
        if trained:
            document["trained"] = trained
        if self._unstepped:
            document["unstepped"] = list(self._unstepped.values())
        return document if steps or trained or self._unstepped else {}

    def _list_trained(self, lists: dict[tuple[str, ...], int]) -> list[dict]:
        """`lists`: those of names so far, with their places."""
        names: dict[tuple, list[str]] = {}
        for (chunk, name), owner in self.trained.items():
            names.setdefault((chunk, *owner), []).append(recordable(name))
        return [
            {
                "chunk": chunk,
                "parameters": lists.setdefault(tuple(of), len(lists)),
                **({} if optimizer is None else {"optimizer": optimizer}),
                "number": number,
                "group": group,
            }
            for (chunk, optimizer, number, group), of in names.items()
        ]
