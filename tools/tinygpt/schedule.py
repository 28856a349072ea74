"""Gradient accumulation over micro-batches."""


def micro_batch_loss(token_losses, batch, options):
    """Over this process's unmasked tokens: their sum, divided by the number of such tokens in the whole micro-batch,
    or not divided yet under --per-token-loss."""
    total = (token_losses * batch.loss_mask).sum()
    return total if options.per_token_loss else total / batch.unmasked


def backward_start(loss, micro_batches, options, loss_scale):
    """What backward starts from: the loss of one of `micro_batches`, divided so that the gradients add up to the
    mean's, or not divided yet under --per-token-loss; times the loss scale. Where gradients are averaged over cp at the
    end, the loss is multiplied by cp before, to the same end."""
    if options.cp_gradients == "average" and (not options.per_token_loss or options.bug == "cp-loss-scale"):
        loss = loss * options.cp
    return loss_scale * (loss if options.per_token_loss else loss / micro_batches)


def accumulate(model, batches, options, loss_scale):
    """Forward and backward of each micro-batch. The losses, one per micro-batch."""
    losses = []
    for batch in batches:
        loss = micro_batch_loss(model(batch.tokens, batch.labels, **batch.packing), batch, options)
        backward_start(loss, len(batches), options, loss_scale).backward()
        losses.append(loss.detach())
    return losses


def divide_gradients(model, count):
    for parameter in model.parameters():
        parameter.main_grad.div_(count)
