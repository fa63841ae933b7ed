"""Register Nero with timm, which creates optimizers by name."""

from nero.optim import Nero


def register() -> None:
    """Register Nero with timm, so that ``create_optimizer_v2(nero.annotate(model), "nero")`` builds it.

    timm sorts the parameters into its own groups, by weight decay or by layer. The layouts stored by
    [`annotate`][nero.annotate] stay with the parameters; without it, layouts are guessed from shapes, with
    a warning.

    timm passes on all options of [`Nero`][nero.Nero] except ``momentum``: use ``preset="rows"`` instead. It
    drops ``betas`` and ``eps``. A nonzero weight decay raises an error.

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
