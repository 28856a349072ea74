"""Without ttrace: the gradient that one step of Trainer has, over that of the mean of what is predicted, and which
causal language models are concerned. python confirm.py"""

import inspect
import tempfile

import torch
import transformers
from torch.utils.data import Dataset
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, Trainer, TrainingArguments
from transformers.loss.loss_utils import LOSS_MAPPING, ForCausalLMLoss
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

SEQUENCE, SAMPLES = 4, 2


class Tokens(Dataset):
    samples = torch.randint(16, (SAMPLES, SEQUENCE), generator=torch.Generator().manual_seed(1))

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.samples[index], "labels": self.samples[index]}


def update(model: torch.nn.Module) -> torch.Tensor:
    """Of one step of SGD: the gradient."""
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with tempfile.TemporaryDirectory() as output:
        training = TrainingArguments(
            output_dir=output,
            per_device_train_batch_size=SAMPLES,
            max_steps=1,
            optim="sgd",
            learning_rate=1.0,
            max_grad_norm=0.0,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        Trainer(model=model, args=training, train_dataset=Tokens()).train()
    return torch.cat([(then - now.detach()).flatten() for then, now in zip(before, model.parameters(), strict=True)])


def main() -> None:
    transformers.logging.set_verbosity_error()
    small = {"vocab_size": 16, "num_hidden_layers": 1, "hidden_size": 8, "num_attention_heads": 1}
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    for config in (LlamaConfig(**small, intermediate_size=8), GPT2Config(**small, **dropout)):
        model = AutoModelForCausalLM.from_config(config).train()
        model(**Tokens()[slice(None)]).loss.backward()
        right = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        found = update(model)
        ratio = float(found @ right / (right @ right))
        name = type(model).__name__
        print(f"{name}: gradient by Trainer {ratio:.4f} of that of the mean, loss_type {model.loss_type}")
    print(f"predicted are {SEQUENCE - 1} of {SEQUENCE} tokens: {(SEQUENCE - 1) / SEQUENCE:.4f}")
    print("the same in", ", ".join(sorted(concerned())))


def concerned() -> set[str]:
    """Models whose loss is the causal one for want of a better name, and which take the number of items."""
    names = set()
    for name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        model = getattr(transformers, name, None)
        if not inspect.isclass(model):
            continue
        source = inspect.getsource(model.forward)
        known = name in LOSS_MAPPING or any(each in name for each in LOSS_MAPPING)
        if not known and "self.loss_function(" in source and "**kwargs" in source:
            names.add(name)
    assert LOSS_MAPPING["ForCausalLM"] is ForCausalLMLoss
    return names


if __name__ == "__main__":
    main()
