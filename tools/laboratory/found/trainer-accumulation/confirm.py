"""Without ttrace: how much longer the gradient of eight samples is by Trainer in four micro-batches than in one.
python confirm.py"""

import tempfile

import torch
import transformers
from torch.utils.data import Dataset, SequentialSampler
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    T5Config,
    T5ForConditionalGeneration,
    Trainer,
    TrainingArguments,
)

SAMPLES, SEQUENCE, VOCABULARY = 8, 6, 32


class Texts(Dataset):
    tokens = torch.randint(3, VOCABULARY, (SAMPLES, SEQUENCE), generator=torch.Generator().manual_seed(1))

    def __init__(self, classes: bool) -> None:
        self.labels = self.tokens[:, 0] % 2 if classes else self.tokens

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}


class InOrder(Trainer):
    def _get_train_sampler(self, *_) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)


def update(model: torch.nn.Module, micro_batches: int) -> torch.Tensor:
    """Of one step of SGD: the gradient."""
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with tempfile.TemporaryDirectory() as output:
        training = TrainingArguments(
            output_dir=output,
            per_device_train_batch_size=SAMPLES // micro_batches,
            gradient_accumulation_steps=micro_batches,
            max_steps=1,
            optim="sgd",
            learning_rate=1.0,
            max_grad_norm=0.0,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        texts = Texts(type(model).__name__.endswith("Classification"))
        trainer = InOrder(model=model, args=training, train_dataset=texts)
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    return torch.cat([(then - now.detach()).flatten() for then, now in zip(before, model.parameters(), strict=True)])


def main() -> None:
    transformers.logging.set_verbosity_error()
    small = {"vocab_size": VOCABULARY, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    small |= {"intermediate_size": 16, "pad_token_id": 0}
    bert = BertConfig(**small, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    llama = LlamaConfig(**small)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    t5 = T5Config(vocab_size=VOCABULARY, **sizes, dropout_rate=0.0, decoder_start_token_id=0)
    tried = [(LlamaForCausalLM, llama), (LlamaForSequenceClassification, llama), (BertForSequenceClassification, bert)]
    for model, config in [*tried, (BertForMaskedLM, bert), (T5ForConditionalGeneration, t5)]:
        gradients = []
        for micro_batches in (1, 4):
            torch.manual_seed(0)
            gradients.append(update(model(config), micro_batches))
        whole, parts = gradients
        times = float(parts @ whole / (whole @ whole))
        print(f"{model.__name__}: four micro-batches {times:.4f} times one", flush=True)


if __name__ == "__main__":
    main()
