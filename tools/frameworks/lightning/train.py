"""Trains a small transformer of PyTorch's own layers by Lightning: by one process, or by several with DDP, which
Lightning starts itself."""

import argparse
import os
import tempfile

import lightning
import torch
import torch.nn.functional as F
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler, SequentialSampler

VOCABULARY, HIDDEN, SEQUENCE, MICRO_BATCHES, MICRO_BATCH_SIZE = 96, 32, 16, 4, 2


class LanguageModel(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions = nn.Embedding(SEQUENCE, HIDDEN)
        layer = nn.TransformerEncoderLayer(HIDDEN, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.head = nn.Linear(HIDDEN, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """[b, s] -> logits [b, s, v]"""
        size = tokens.shape[1]
        hidden = self.embedding(tokens) + self.positions(torch.arange(size))
        mask = nn.Transformer.generate_square_subsequent_mask(size)
        return self.head(self.encoder(hidden, mask=mask, is_causal=True))

    def training_step(self, text: Tensor, _: int) -> Tensor:
        """text [b, s + 1]"""
        logits = self(text[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Text(Dataset):
    def __init__(self, samples: int):
        generator = torch.Generator().manual_seed(1)
        self.samples = torch.randint(VOCABULARY, (samples, SEQUENCE + 1), generator=generator)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> Tensor:
        return self.samples[index]


class TurnsSampler(DistributedSampler):
    """Ranks take turns with whole micro-batches, not with samples."""

    def __iter__(self):
        batches = torch.arange(len(self.dataset)).view(-1, MICRO_BATCH_SIZE)
        return iter(batches[self.rank :: self.num_replicas].flatten().tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1)
    arguments = parser.parse_args()
    lightning.seed_everything(0)
    model = LanguageModel()
    text = Text(MICRO_BATCHES * MICRO_BATCH_SIZE)
    several = arguments.ranks > 1
    sampler = SequentialSampler(text)
    if several:
        sampler = TurnsSampler(text, num_replicas=arguments.ranks, rank=int(os.environ.get("LOCAL_RANK", "0")))
    with tempfile.TemporaryDirectory() as output:
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=arguments.ranks,
            strategy=DDPStrategy(process_group_backend="gloo") if several else "auto",
            use_distributed_sampler=False,
            accumulate_grad_batches=MICRO_BATCHES // arguments.ranks,
            gradient_clip_val=1.0,
            max_steps=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=output,
        )
        trainer.fit(model, DataLoader(text, batch_size=MICRO_BATCH_SIZE, sampler=sampler))
    print(f"loss {float(trainer.callback_metrics['loss']):.6f}", flush=True)


if __name__ == "__main__":
    main()
