"""A regressor that is fitted as scikit-learn's are, with accelerate's mixin.

package: skorch
parallel: DDP by accelerate, 2 ranks
mistake: rank 1 takes targets that are 1 % too large
shows: MSELoss*input, *MSELoss* output, loss scalar, (model)* grad_output
"""

import os

import before_torchvision  # noqa: F401
import numpy as np
import torch
from accelerate import Accelerator
from skorch import NeuralNetRegressor
from skorch.hf import AccelerateMixin
from torch import nn

WRONG = bool(os.environ.get("MISTAKE"))


class Regressor(AccelerateMixin, NeuralNetRegressor):
    """Of accelerate."""

    def get_loss(self, y_pred, y_true, X=None, training=False):
        if WRONG and self.accelerator.process_index == 1:
            y_true = y_true * 1.01
        return super().get_loss(y_pred, y_true, X=X, training=training)


torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1))
regressor = Regressor(
    model,
    accelerator=accelerator,
    optimizer=torch.optim.Adam,
    lr=1e-3,
    max_epochs=1,
    batch_size=8 // accelerator.num_processes,
    train_split=None,
    callbacks__print_log=None,
)
draws = np.random.default_rng(0)
regressor.fit(draws.normal(size=(24, 8)).astype("float32"), draws.normal(size=(24, 1)).astype("float32"))
accelerator.end_training()
