"""Nero among the optimizers that timm creates by name."""

from nero.optim import Nero


def register() -> None:
    """Tell timm about Nero: ``create_optimizer_v2(nero.annotate(model), "nero")`` then builds it.

    timm sorts the parameters into groups of its own, by weight decay or by layer, and passes those. What
    [`annotate`][nero.annotate] left on the parameters goes with them; without it, neurons are read from
    shapes, with a warning.

    Options of [`Nero`][nero.Nero] are passed on, but for ``momentum``, which timm keeps to itself: ask for
    ``preset="rows"`` instead. ``betas`` and ``eps`` are dropped. A weight decay other than 0 is an error.

    Example:
        >>> from timm.optim import create_optimizer_v2
        >>> from nero.integrations.timm import register
        >>> register()
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
        >>> optimizer = create_optimizer_v2(nero.annotate(model), "nero")
        >>> [group["role"] for group in optimizer.param_groups]
        ['neuron', 'bias', 'gain']
    """
    from timm.optim._optim_factory import OptimInfo, default_registry, list_optimizers

    if "nero" in list_optimizers():
        return
    default_registry.register(
        OptimInfo(
            name="nero",
            opt_class=Nero,
            description="Turns every neuron by an angle, and keeps it balanced",
            has_eps=False,
        )
    )
