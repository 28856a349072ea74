"""How the program has configured its modules: the class of each, and the plain attributes that its constructor left.
Once a run, before a model's first call; what has changed by the end is no configuration. `ModuleConfigurations` in
src/base/configuration.h has the format."""

import dataclasses
import json
import math
import re
import types
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from .clock import Chunk
from .names import name_of_class, numbered, plain_class, plain_name, recordable
from .sources import by_pattern

_MOST_BYTES = 1 << 18  # of the document, a quarter of what a trace can hold of all facts
_MOST_ATTRIBUTES = 256  # of a module or an object
_MOST_LETTERS = 64
_MOST_MODELS = 8  # that are called without gradients
_MOST_ITEMS = 8
_OBJECT = re.compile(r"(^|_)(config|cfg|hparams|args)$")
# What is private to the machine or the user, or counts modules.
_PRIVATE = re.compile(
    r"path|dir$|directory|file|token$|secret|password|passwd|api_?key|auth|credential|host|user|url|addr", re.I
)
_NUMBERS_OF_LAYERS = frozenset({"layer_idx", "layer_id", "layer_number", "layer_index", "block_idx", "layer_num"})

Attributes = dict[str, str]
Fixed = tuple[str, Attributes, dict[str, tuple[int, Attributes]]]  # class, attributes, objects with their ids


class Configurations:
    def __init__(self) -> None:
        self._chunks: dict[int, dict[str, tuple[torch.nn.Module, Fixed]]] = {}  # by number, and the module's name
        self._seen: set[int] = set()
        self._without_grad: dict[str, tuple[torch.nn.Module, Fixed]] = {}  # by name, which begins with a class's
        self._titles: Counter[str] = Counter()

    def saw(self, chunk: Chunk) -> None:
        """Before the first call of a chunk; of each only the first time counts."""
        if chunk.number not in self._seen:
            self._seen.add(chunk.number)
            self._look_at(chunk.number, ((chunk.names.get(id(module)), module) for module in chunk.root.modules()))

    def saw_alone(self, chunk: int, module: torch.nn.Module, names: dict[int, str]) -> None:
        """Before a call of a module that is part of none, such as a loss, which is recorded with those of `chunk`."""
        self._look_at(chunk, ((names[id(inner)], inner) for inner in module.modules()))

    def saw_without_grad(self, model: torch.nn.Module) -> None:
        """Before a call without gradients by the program itself. Those of models that train are left out in the end."""
        if self._titles.total() == _MOST_MODELS or any(model is seen for seen, _ in self._without_grad.values()):
            return
        title = numbered(plain_name(type(model)), self._titles)
        for path, module in model.named_modules():
            name = recordable(f"{title}.{path}" if path else title)
            self._without_grad[name] = module, _configuration_of(module)

    def _look_at(self, chunk: int, modules: Iterable[tuple[str | None, torch.nn.Module]]) -> None:
        known = self._chunks.setdefault(chunk, {})
        for name, module in modules:
            if name is not None and (recorded := recordable(name)) not in known:
                known[recorded] = module, _configuration_of(module)

    def as_document(self) -> dict:
        """Empty where nothing is known, or where it would be too long."""
        objects, values = _Table(), _Table()
        chunks: list[dict[str, int]] = []
        for number in range(max(self._chunks, default=-1) + 1):
            modules = self._chunks.get(number, {})
            places = {name: values.place_of(_value(*seen, objects)) for name, seen in modules.items()}
            chunks.append(by_pattern(places))
        trained = {id(module) for modules in self._chunks.values() for module, _ in modules.values()}
        without_grad = {
            name: values.place_of(_value(*seen, objects))
            for name, seen in self._without_grad.items()
            if id(seen[0]) not in trained
        }
        document = {"objects": objects.items, "values": values.items, "modules": chunks}
        document |= {"without_grad": without_grad} if without_grad else {}
        return document if any(chunks) and len(json.dumps(document)) <= _MOST_BYTES else {}


class _Table:
    """Holds each item once."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._places: dict[str, int] = {}

    def place_of(self, item: Any) -> int:
        place = self._places.setdefault(json.dumps(item, sort_keys=True), len(self.items))
        if place == len(self.items):
            self.items.append(item)
        return place


def _value(module: torch.nn.Module, first: Fixed, objects: _Table) -> dict:
    """What was so before the first call, and still is. A program that evaluates at its end has not changed the mode
    that it trained in."""
    now = _configuration_of(module)
    value: dict[str, Any] = {"class": first[0], "attributes": _unchanged(first[1], now[1])}
    if "training" in first[1]:
        value["attributes"]["training"] = first[1]["training"]
    places = {
        name: objects.place_of(_unchanged(attributes, now[2][name][1]))
        for name, (key, attributes) in first[2].items()
        if name in now[2] and now[2][name][0] == key
    }
    return value | ({"objects": places} if places else {})


def _unchanged(first: Attributes, now: Attributes) -> Attributes:
    return {name: text for name, text in first.items() if now.get(name) == text}


def _configuration_of(module: torch.nn.Module) -> Fixed:
    owned = vars(module)
    objects = {
        name: (id(value), dict(_plain_attributes(_members(value))))
        for name, value in owned.items()
        if not name.startswith("_") and _is_object(name, value)
    }
    return name_of_class(plain_class(type(module))), dict(_plain_attributes(owned)), objects


def _is_object(name: str, value: Any) -> bool:
    if isinstance(value, (torch.nn.Module, torch.Tensor, type)) or value is None:
        return False
    return bool(_members(value)) and (dataclasses.is_dataclass(value) or _OBJECT.search(name) is not None)


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else getattr(value, "__dict__", {})


def _plain_attributes(owned: dict[Any, Any]) -> Iterator[tuple[str, str]]:
    count = 0
    for name, value in owned.items():
        if not isinstance(name, str) or name.startswith("_") or name in _NUMBERS_OF_LAYERS or _PRIVATE.search(name):
            continue
        text = _text_of(value)
        if text is None or count == _MOST_ATTRIBUTES:
            continue
        count += 1
        yield recordable(name), text


def _text_of(value: Any) -> str | None:
    """As Python writes it; None where it is not plain, or might be a place or a secret."""
    if type(value) in (tuple, list, torch.Size):
        if len(value) > _MOST_ITEMS or not all(type(item) in (bool, int, float) for item in value):
            return None
        return repr(tuple(value))
    if value is None or type(value) in (bool, int) or isinstance(value, torch.dtype):
        return str(value)[:_MOST_LETTERS]
    if type(value) is float:
        return repr(value) if math.isfinite(value) else str(value)
    if type(value) is str:
        is_word = len(value) <= _MOST_LETTERS // 2 and re.fullmatch(r"[A-Za-z_][\w ,-]*", value, re.ASCII)
        return repr(value) if is_word else None
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)) and "<" not in value.__qualname__:
        return f"{value.__qualname__}()"[:_MOST_LETTERS]
    return None
