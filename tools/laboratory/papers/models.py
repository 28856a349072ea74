"""ATTNChecker's tables 2 and 3 on transformers' Bert, GPT-2, GPT-Neo and Roberta: what of attention's work is
products, and how often one extreme value makes the loss NaN. Small models, as the classes build them; random weights,
and sentences of random tokens. A fault is in Q, K, V (what the projections return), AS or CL (what the two products
return)."""

import contextlib
import itertools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from evaluations.markdown import table

from .faulty_trace import near_infinity, set_to

LAYERS, HEADS, WIDTH, SEQUENCE, BATCH = 2, 4, 64, 32, 8
FAULTS = 20  # of each cell
ERRORS = {"INF": set_to(math.inf), "NaN": set_to(math.nan), "nINF": near_infinity}
PLACES = ("Q", "K", "V", "AS", "CL")
PAPER_SHARES = {"Bert": 99.7, "GPT-2": 99.5, "GPT-Neo": 99.3, "Roberta": 99.7}
PAPER = {  # table 3, percent
    ("INF", "Bert"): (100, 100, 100, 100, 100),
    ("INF", "GPT-2"): (91.8, 86.8, 100, 56.9, 100),
    ("INF", "GPT-Neo"): (100, 85.6, 100, 54.7, 100),
    ("INF", "Roberta"): (100, 99.9, 100, 100, 100),
    ("NaN", "Bert"): (100, 100, 100, 100, 100),
    ("NaN", "GPT-2"): (100, 100, 100, 54.7, 100),
    ("NaN", "GPT-Neo"): (100, 100, 100, 54.7, 100),
    ("NaN", "Roberta"): (100, 100, 100, 100, 100),
    ("nINF", "Bert"): (45.9, 43.4, 6.3, 0.2, 0.6),
    ("nINF", "GPT-2"): (38.4, 37.2, 1.0, 0.5, 0.7),
    ("nINF", "GPT-Neo"): (10.3, 14.4, 5.8, 11.2, 9.6),
    ("nINF", "Roberta"): (54.0, 49.9, 3.6, 5.5, 0.4),
}


@dataclass(frozen=True)
class Architecture:
    config: str
    model: str
    sizes: tuple[str, str, str, str]  # what the configuration calls layers, heads, width and the longest sequence
    attention: str  # modules of attention end in it
    projections: tuple[str, str, str]  # of Q, K and V in it; one name thrice: one projection that makes all three
    further: tuple[tuple[str, object], ...] = ()


BERT_SIZES = ("num_hidden_layers", "num_attention_heads", "hidden_size", "max_position_embeddings")
GPT_SIZES = ("n_layer", "n_head", "n_embd", "n_positions")
OF_BERT = (BERT_SIZES, "attention.self", ("query", "key", "value"))
ARCHITECTURES = {
    "Bert": Architecture("BertConfig", "BertForSequenceClassification", *OF_BERT),
    "GPT-2": Architecture("GPT2Config", "GPT2ForSequenceClassification", GPT_SIZES, "attn", ("c_attn",) * 3),
    "GPT-Neo": Architecture(
        "GPTNeoConfig",
        "GPTNeoForSequenceClassification",
        ("num_layers", "num_heads", "hidden_size", "max_position_embeddings"),
        "attn.attention",
        ("q_proj", "k_proj", "v_proj"),
        (("attention_types", [[["global"], LAYERS]]),),
    ),
    "Roberta": Architecture("RobertaConfig", "RobertaForSequenceClassification", *OF_BERT),
}


def build(name: str, layers=LAYERS, heads=HEADS, width=WIDTH, longest=SEQUENCE):
    import transformers

    architecture = ARCHITECTURES[name]
    sizes = dict(zip(architecture.sizes, (layers, heads, width, longest + 2), strict=True))
    further = dict(architecture.further)
    if name == "GPT-Neo":
        further["attention_types"] = [[["global"], layers]]
    config = getattr(transformers, architecture.config)(vocab_size=500, **sizes, **further)
    config.num_labels, config.pad_token_id = 2, 1 if name == "Roberta" else 0
    config.bos_token_id = config.eos_token_id = 2
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    return getattr(transformers, architecture.model)(config).train()


@contextlib.contextmanager
def struck(model, architecture: Architecture, place: str, error, layer: int, draw: random.Random) -> Iterator[None]:
    """While it runs, one element of `place` in attention of that layer gets the error, once."""
    done = []

    def strike(tensor: torch.Tensor, begin: int = 0, width: int | None = None) -> torch.Tensor:
        if done:
            return tensor
        done.append(True)
        wrong = tensor.detach().clone().contiguous()
        width = width or wrong.shape[-1]
        row, col = draw.randrange(wrong.numel() // wrong.shape[-1]), begin + draw.randrange(width)
        error(wrong.view(-1), row * wrong.shape[-1] + col, draw)
        return with_value(tensor, wrong)

    attentions = [module for name, module in model.named_modules() if name.endswith(f".{architecture.attention}")]
    if place in ("Q", "K", "V"):
        number = PLACES.index(place)
        projection = getattr(attentions[layer], architecture.projections[number])
        shared = len(set(architecture.projections)) == 1

        def hook(module, inputs, output):
            third = output.shape[-1] // 3
            return strike(output, number * third, third) if shared else strike(output)

        handle = projection.register_forward_hook(hook)
        yield
        handle.remove()
    else:
        products, matmul = itertools.count(), torch.matmul
        wanted = 2 * layer + (place == "CL")

        def product(a, b, **options):
            result = matmul(a, b, **options)
            return strike(result) if result.dim() == 4 and next(products) == wanted else result

        torch.matmul = product
        try:
            yield
        finally:
            torch.matmul = matmul
    assert done, f"{place} of layer {layer} was not met"


class _WithValue(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, value):
        return value

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def with_value(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """The value, whose gradient is that of the tensor."""
    return _WithValue.apply(tensor, value)


def is_untrainable(name: str, place: str, error, draw: random.Random, model, state) -> bool:
    """Whether the loss is NaN in the step of the fault, or in the next one."""
    model.load_state_dict(state)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    tokens = torch.randint(4, 500, (BATCH, SEQUENCE), generator=torch.Generator().manual_seed(draw.randrange(10**6)))
    labels = torch.arange(BATCH) % 2
    for is_struck in (True, False):
        layer = draw.randrange(LAYERS)
        fault = struck(model, ARCHITECTURES[name], place, error, layer, draw) if is_struck else contextlib.nullcontext()
        with fault:
            loss = model(input_ids=tokens, labels=labels).loss
        if torch.isnan(loss):
            return True
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return False


class Counted(TorchDispatchMode):
    """Counts flop of products, and of all else one for each element that an operation returns (of a softmax, five)."""

    def __init__(self):
        super().__init__()
        self.products = self.others = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name in ("mm", "addmm", "bmm", "baddbmm"):
            a, b = args[-2:]
            self.products += 2 * a.numel() * b.shape[-1]
            if name == "addmm":
                self.others += result.numel()
        elif isinstance(result, torch.Tensor) and result.is_floating_point() and not func.is_view:
            moves = name in ("clone", "copy_", "empty", "empty_like", "_to_copy", "contiguous")
            self.others += 0 if moves else result.numel() * (5 if name == "_softmax" else 1)
        return result


def share_of_products(name: str) -> float:
    """Of one forward of one attention of the base size, 128 tokens: products over all flop, percent."""
    model = build(name, 1, 12, 768, 128)
    architecture = ARCHITECTURES[name]
    whole = architecture.attention.split(".")[0]  # with its output projection
    module = next(module for path, module in model.named_modules() if path.endswith(f".{whole}"))
    counted = Counted()
    module.register_forward_pre_hook(lambda *_: counted.__enter__() and None)
    module.register_forward_hook(lambda *_: counted.__exit__(None, None, None))
    with torch.no_grad():
        model(input_ids=torch.randint(4, 500, (1, 128)))
    return 100 * counted.products / (counted.products + counted.others)


def measure(faults: int = FAULTS) -> list[str]:
    shares = [[name, f"{share_of_products(name):.1f} %", f"{PAPER_SHARES[name]} %"] for name in ARCHITECTURES]
    rows = []
    for kind, error in ERRORS.items():
        for name in ARCHITECTURES:
            model = build(name)
            state = {key: value.clone() for key, value in model.state_dict().items()}
            draw = random.Random(f"{kind} {name}")
            cells = []
            for place, paper in zip(PLACES, PAPER[kind, name], strict=True):
                bad = sum(is_untrainable(name, place, error, draw, model, state) for _ in range(faults))
                cells.append(f"{100 * bad / faults:.0f} % ({paper} %)")
            rows.append([kind, name, *cells])
    return [
        "Classes of transformers 5.23.0 for classification, eager attention, fp32, dropout as configured.",
        "",
        "Table 2: of the flop of one attention of the base size (width 768, 12 heads, 128 tokens), those of matrix "
        "products. All else counts one for each element that an operation returns, a softmax five; the paper does "
        "not say how it counts.",
        "",
        *table(["model", "products", "paper"], shares),
        "",
        f"Table 3: how often the loss is NaN in the step of a fault or in the next one, of {faults} faults a cell "
        f"(paper: 10 % of a matrix's elements). {LAYERS} layers of width {WIDTH}, {HEADS} heads, {SEQUENCE} tokens, "
        "random weights; near-INF is a flip of the exponent's highest bit.",
        "",
        *table(["error", "model", *(f"{place} (paper)" for place in PLACES)], rows),
        "",
        "INF and NaN end training wherever they reach the loss or a gradient, as in the paper. In the scores the "
        "causal mask hides some where it takes their place, as GPT-Neo's does; that of GPT-2 is added to them in this "
        "release, and INF and NaN stay, where releases of the paper's time put a number in their place. Near-INF is "
        "the other way round here, for two reasons, which the next section takes away one by one.",
    ]
