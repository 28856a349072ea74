"""Puts the parts together, and into torch."""

from torch.optim.optimizer import register_optimizer_step_post_hook

from . import adapters, captures, checkpoints, compiled_functions, data_loading, patches
from .adapters import Adapter
from .buffers import Buffers
from .collector import Collector
from .config import Config
from .gradients import Gradients
from .looks import Looks
from .modules import Modules
from .optimizers import Optimizers
from .perturb import PERTURBATIONS
from .rewrite import Rewriting
from .weight_copies import WeightCopies
from .without_grad import WithoutGrad


def start(config: Config) -> tuple[Collector, Modules]:
    collector = Collector(config)
    gradients = Gradients(collector)
    rewriting = None if config.rewrite is None else Rewriting(collector, config.rewrite)
    perturbation = None
    if config.perturb is not None and config.perturb_at in PERTURBATIONS:  # else `rewrite` gives perturbed values
        perturbation = PERTURBATIONS[config.perturb_at](collector, config.perturb)
    modules = Modules(collector, gradients, perturbation, rewriting)
    modules.install()
    data_loading.install()
    checkpoints.install(collector, modules.stack)
    compiled_functions.install(collector, modules)
    captures.install(collector)
    if collector.no_grad:  # of training, where iterations end is all that counts
        patches.keep(register_optimizer_step_post_hook(lambda *_: collector.safely(collector.clock.step)))
    else:
        _install_training(collector, gradients)
    looks = Looks(collector)
    Buffers(collector, looks).install()
    WeightCopies(collector, looks).install()
    collector.on_first_model += [
        lambda: checkpoints.install_adapters(collector, modules.stack),
        lambda: list(adapters.every(Adapter.record_inside, modules.record_as_input, modules.record_as_output)),
    ]
    if config.may_go_on and perturbation is None and rewriting is None:
        modules.without_grad = WithoutGrad(config)
    patches.keep(register_optimizer_step_post_hook(lambda *_: collector.on_optimizer_step()))
    return collector, modules


def _install_training(collector: Collector, gradients: Gradients) -> None:
    gradients.install()
    optimizers = Optimizers(collector, gradients)
    optimizers.install()
    collector.on_first_model += [gradients.install_adapters, optimizers.install_adapters]
