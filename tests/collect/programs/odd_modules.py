"""One forward and backward of a model whose modules take, return and do odd things; `x` is 0 to 5 in two rows. Every
module says by its name what is odd. The program checks that what it gets has the types that its modules return."""

import collections
import dataclasses
from typing import Any, NamedTuple

import torch
from torch import nn


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    hidden: Any
    length: int = 3


@dataclasses.dataclass
class Late:
    source: Any
    double: Any = dataclasses.field(init=False)

    def __post_init__(self):
        self.double = 2 * self.source


class ModelOutput(collections.OrderedDict):
    """As Hugging Face's: a dataclass, and a dictionary of the fields that are not None."""

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is not None:
                self[field.name] = getattr(self, field.name)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __reduce__(self):
        callable_, _, *rest = super().__reduce__()
        return callable_, tuple(getattr(self, field.name) for field in dataclasses.fields(self)), *rest


@dataclasses.dataclass
class LanguageModelOutput(ModelOutput):
    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None


class Batch(collections.abc.MutableMapping):
    """A mapping whose constructor takes no items."""

    def __init__(self, size):
        self.size, self._kept = size, {}

    def __getitem__(self, key):
        return self._kept[key]

    def __setitem__(self, key, value):
        self._kept[key] = value

    def __delitem__(self, key):
        del self._kept[key]

    def __iter__(self):
        return iter(self._kept)

    def __len__(self):
        return len(self._kept)


class Cache:
    def __init__(self, key):
        self.layers = [{"key": key}]


class Named(torch.Tensor):
    """A subclass that keeps its values as any tensor does."""


class Does(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def batch_of(x):
    batch = Batch(2)
    batch["x"] = x
    return batch


def add_to(x):
    x += 1
    return x


class Fails(nn.Module):
    def forward(self, x, fail):
        if fail:
            raise ValueError("too large")
        return x + 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.mutates_input = Does(add_to)
        self.mutates_view = Does(add_to)
        self.returns_input = nn.Identity()
        self.called_twice = nn.Linear(3, 3, bias=False)
        self.shares_weight = nn.Linear(3, 3, bias=False)
        self.teacher = nn.Linear(3, 3, bias=False)
        for linear in (self.called_twice, self.shares_weight, self.teacher):
            nn.init.constant_(linear.weight, 1)
        self.shares_weight.weight = self.called_twice.weight
        self.keywords = Does(lambda x, *, mask, state: x * mask + state.hidden)
        self.nested = Does(lambda x: {"a": (x, [x + 1]), "none": None, "pair": Pair(x + 2, 5), 7: x + 3})
        self.frozen = Does(lambda x: Frozen(x + 1))
        self.late = Does(Late)
        self.model_output = Does(lambda x: LanguageModelOutput(logits=x + 1))
        self.mapping = Does(lambda x: batch_of(x + 1))
        self.deque = Does(lambda x: collections.deque([x + 1], maxlen=4))
        self.returns_none = Does(lambda x: None)
        self.subclass = Does(lambda x: (x + 1).as_subclass(Named))
        self.generator = Does(lambda x: (row + 1 for row in x))
        self.custom = Does(lambda x, cache: (x + 1, Cache(x)))
        self.fails = Fails()
        self.changed_later = Does(lambda x: x + 1)
        self.views = Does(lambda x: ((x + 1).t()[1:], (x[:1] + 2).expand(3, 3), (2 * x)[..., None].real))
        self.scripted = torch.jit.script(nn.Sequential(nn.Linear(3, 3)))
        nn.init.constant_(self.scripted[0].weight, 1)
        nn.init.constant_(self.scripted[0].bias, 0)

    def forward(self, x, batch):
        assert type(batch) is Frozen and batch.length == 3
        x = x * self.weight
        y = self.mutates_input(x.clone()) + self.mutates_view((x + 0).view(3, 2)).view(2, 3)
        y = y + self.returns_input(x + 0) + self.shares_weight(self.called_twice(self.called_twice(x + 0)))
        with torch.no_grad():
            target = self.teacher(x)
        y = y - target + self.keywords(x=x + 0, mask=2 * x.detach(), state=Frozen(x + 1))
        nested = self.nested(x + 0)
        assert list(nested) == ["a", "none", "pair", 7] and type(nested["pair"]) is Pair
        frozen, late = self.frozen(x + 0), self.late(x + 0)
        assert type(frozen) is Frozen and type(late) is Late
        y = y + nested["a"][1][0] + nested["pair"].first + nested[7] + frozen.hidden + late.double
        output, batch = self.model_output(x + 0), self.mapping(x + 0)
        assert output["logits"] is output.logits and output.loss is None and batch.size == 2
        y = y + output.logits + batch["x"]
        queue = self.deque(x + 0)
        assert queue.maxlen == 4 and self.returns_none(x + 0) is None
        y = y + queue[0] + self.subclass(x + 0).as_subclass(torch.Tensor) + torch.stack(list(self.generator(x + 0)))
        out, cache = self.custom(x + 0, Cache(x))
        y = y + out + cache.layers[0]["key"]
        try:
            self.fails(x + 0, True)
        except ValueError:
            y = y + self.fails(x + 0, False)
        changed = self.changed_later(x + 0)
        changed *= 100
        transposed, expanded, real = self.views(x + 0)
        y = y + changed + transposed.sum() + expanded[:2] + real[..., 0]
        return y + self.scripted(x + 0)


model, teacher = Model(), nn.Linear(3, 3)
x = torch.arange(6.0).view(2, 3)
with torch.no_grad():
    teacher(x)
model(x, batch=Frozen(x)).sum().backward()
