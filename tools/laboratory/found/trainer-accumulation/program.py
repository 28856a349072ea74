"""Trains a tiny GPT-2 to classify, for one step of four micro-batches: in a plain loop, or by
`transformers.Trainer`."""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset, SequentialSampler
from transformers import GPT2Config, GPT2ForSequenceClassification, Trainer, TrainingArguments

MICRO_BATCHES, MICRO_BATCH_SIZE, SEQUENCE, VOCABULARY, CLASSES = 4, 2, 16, 96, 6


class Texts(Dataset):
    """Of some classes."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        samples = MICRO_BATCHES * MICRO_BATCH_SIZE
        self.tokens = torch.randint(1, VOCABULARY, (samples, SEQUENCE), generator=generator)
        self.classes = torch.randint(CLASSES, (samples,), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int | slice) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.classes[index]}


class InOrder(Trainer):
    """Without shuffling."""

    def _get_train_sampler(self, *_) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)


def new_model() -> GPT2ForSequenceClassification:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=SEQUENCE,
        num_labels=CLASSES,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        pad_token_id=0,
    )
    return GPT2ForSequenceClassification(config).train()


def train_plainly(model: GPT2ForSequenceClassification) -> None:
    texts = Texts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    items = torch.tensor(float(len(texts)))  # which the model makes no use of
    for first in range(0, len(texts), MICRO_BATCH_SIZE):
        loss = model(**texts[first : first + MICRO_BATCH_SIZE], num_items_in_batch=items).loss
        (loss / MICRO_BATCHES).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def train(model: GPT2ForSequenceClassification, told: bool) -> None:
    with tempfile.TemporaryDirectory() as output:
        training = TrainingArguments(
            output_dir=output,
            per_device_train_batch_size=MICRO_BATCH_SIZE,
            gradient_accumulation_steps=MICRO_BATCHES,
            max_steps=1,
            learning_rate=0.1,
            optim="sgd",
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = InOrder(model=model, args=training, train_dataset=Texts())
        if told:
            trainer.loss_is_scaled_for_ga = False
        trainer.train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainer", action="store_true", help="not the plain loop")
    parser.add_argument("--told", action="store_true", help="Trainer, that the model divides by no number of items")
    arguments = parser.parse_args()
    model = new_model()
    if arguments.trainer:
        train(model, arguments.told)
    else:
        train_plainly(model)


if __name__ == "__main__":
    main()
