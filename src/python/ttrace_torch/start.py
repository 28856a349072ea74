"""Puts the parts together and into torch."""

import atexit
import os

from . import checkpoints, compiled
from .collector import Collector
from .config import Config
from .explicit import Explicit
from .gradients import Gradients
from .modules import Modules
from .optimizers import Optimizers
from .perturb import PLACES
from .rewrite import Rewriting


def start(config: Config) -> Explicit:
    collector = Collector(config)
    gradients = Gradients(collector)
    rewriting = None if config.rewrite is None else Rewriting(collector, config.rewrite)
    perturbs = config.perturb_at in PLACES and config.perturb is not None  # else what is given is perturbed already
    perturbation = PLACES[config.perturb_at](collector, config.perturb) if perturbs else None
    modules = Modules(collector, gradients, perturbation, rewriting)
    modules.install()
    checkpoints.install(collector, modules)
    compiled.install(collector, modules)
    gradients.install()
    optimizers = Optimizers(collector, gradients)
    optimizers.install()
    collector.on_first_model += [gradients.install_adapters, optimizers.install_adapters]
    os.register_at_fork(after_in_child=collector.after_fork)
    atexit.register(collector.at_exit)
    return Explicit(collector, modules)
