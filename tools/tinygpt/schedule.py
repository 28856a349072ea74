"""Gradient accumulation over micro-batches."""


def masked_mean(token_losses, loss_mask):
    """The loss of a micro-batch: the mean over its unmasked tokens."""
    return (token_losses * loss_mask).sum() / loss_mask.sum()


def accumulate(model, batches):
    """Forward and backward of each micro-batch. The losses, one per micro-batch; what backward starts from is
    each loss divided by their number, so that the gradients add up to the mean's."""
    losses = []
    for batch in batches:
        loss = masked_mean(model(batch.tokens, batch.labels), batch.loss_mask)
        (loss / len(batches)).backward()
        losses.append(loss.detach())
    return losses
