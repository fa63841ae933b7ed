"""Nero in Hugging Face's Trainer, and in those built on it (TRL, axolotl)."""

from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from nero.core.arguments import kind_of
from nero.core.warn import warn_user
from nero.diagnostics import TurningMonitor
from nero.optim import Nero


class NeroFactory:
    """Builds the optimizer from the model rather than from its parameters.

    If ``optimizer_cls`` is not an ``Optimizer``, the Trainer instantiates it and calls the object with the
    model; axolotl also passes its training arguments.

    Example:
        >>> from nero.integrations.huggingface import NeroFactory
        >>> optimizer = NeroFactory()(nn.Linear(4, 3), lr=0.02)
        >>> [group["role"] for group in optimizer.param_groups]
        ['neuron', 'bias']
    """

    def __call__(self, model: nn.Module, _args: Any = None, **options: Any) -> Nero:
        """Return [`Nero`][nero.Nero] for a model, with these options."""
        return Nero(model, **options)


def nero_for(args: TrainingArguments, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Return the Trainer's ``optimizer_cls_and_kwargs``.

    The learning rate is ``lr`` if given here, else ``args.learning_rate`` if it was set, else the preset's;
    the default of ``TrainingArguments``, 5e-5, is meant for AdamW and is ignored.

    Args:
        args: the training arguments. Weight decay is not used, since norms are fixed; a value other than 0
            triggers a warning.
        options: the options of [`Nero`][nero.Nero].

    Example:
        >>> from transformers import TrainingArguments
        >>> from nero.integrations.huggingface import nero_for
        >>> args = TrainingArguments(learning_rate=0.01, use_cpu=True, report_to=[])
        >>> nero_for(args, constraint="initial")[1]
        {'lr': 0.01, 'constraint': 'initial'}
        >>> args = TrainingArguments(use_cpu=True, report_to=[])
        >>> nero_for(args, preset="polar")[1]  # its own learning rate, 0.03
        {'preset': 'polar'}
    """
    if not isinstance(args, TrainingArguments):
        raise TypeError(f"args must be the Trainer's TrainingArguments, not {kind_of(args)}")
    if args.weight_decay:
        warn_user(
            f"weight_decay={args.weight_decay:g} in the training arguments has no effect: Nero fixes the "
            "norm of every neuron; set it to 0, and see gain_penalty for regularization"
        )
    options = {name: value for name, value in options.items() if value is not None}
    fields = args.__dataclass_fields__  # TRL's arguments have other defaults
    has_rate = args.learning_rate != fields["learning_rate"].default
    if "lr" not in options and has_rate:
        return NeroFactory, {"lr": args.learning_rate, **options}
    return NeroFactory, options


class TurningCallback(TrainerCallback):
    """Attaches a `TurningMonitor` to the Trainer's optimizer, which exists only once training starts.

    Args:
        options: the options of [`TurningMonitor`][nero.diagnostics.TurningMonitor]: ``every``, ...

    Example:
        >>> from nero.integrations.huggingface import TurningCallback
        >>> callback = TurningCallback(every=50)  # Trainer(..., callbacks=[callback])
    """

    monitor: TurningMonitor | None = None
    """The run's monitor, once training has started."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Attach the monitor to the optimizer inside Accelerate's wrapper."""
        optimizer = getattr(kwargs["optimizer"], "optimizer", kwargs["optimizer"])
        self.monitor = TurningMonitor(optimizer, kwargs["model"], **self.options)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Detach the monitor."""
        if self.monitor is not None:
            self.monitor.close()
