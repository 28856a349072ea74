"""Whisper from scratch: spectrograms to tokens, with padding that is not counted.

package: transformers
parallel: DDP, 2 ranks
mistake: rank 1 drops a label
shows: (model):labels input, (model)*labels* input, loss scalar
"""

import before_torchvision  # noqa: F401
from job import MISTAKE, RANK, ddp, own, step, torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

config = WhisperConfig(
    vocab_size=60,
    num_mel_bins=8,
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=64,
    decoder_ffn_dim=64,
    max_source_positions=20,
    max_target_positions=16,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=1,
    dropout=0.0,
)
model = WhisperForConditionalGeneration(config)
net = ddp(model)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
for _ in range(3):
    features, labels = own(torch.randn(8, 8, 40)), own(torch.randint(3, 60, (8, 9)))
    if MISTAKE and RANK == 1:
        labels = labels.clone()
        labels[0, -1] = -100
    step(optimizer, net(input_features=features, labels=labels).loss)
