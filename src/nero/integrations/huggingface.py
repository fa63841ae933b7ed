"""Nero in the Trainer of Hugging Face, and in those that are built on it (TRL, axolotl)."""

from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from nero.core.arguments import kind_of
from nero.core.presets import find_preset
from nero.core.warn import warn_user
from nero.diagnostics import TurningMonitor
from nero.optim import Nero


class NeroFactory:
    """Builds the optimizer from the model, where a class would get parameters without it.

    The Trainer makes an object of any class that is no ``Optimizer``, and calls it with the model; axolotl
    with its training arguments too.

    Example:
        >>> from nero.integrations.huggingface import NeroFactory
        >>> optimizer = NeroFactory()(nn.Linear(4, 3), lr=0.02)
        >>> [group["role"] for group in optimizer.param_groups]
        ['neuron', 'bias']
    """

    def __call__(self, model: nn.Module, _args: Any = None, **options: Any) -> Nero:
        """Return [`Nero`][nero.Nero] for a model; the options are its own."""
        return Nero(model, **options)


def nero_for(args: TrainingArguments, **options: Any) -> tuple[Any, dict[str, Any]]:
    """Return what the Trainer takes as ``optimizer_cls_and_kwargs``.

    The learning rate is ``lr`` if given here, else ``args.learning_rate`` if it was set, else that of the
    preset; the default of ``TrainingArguments``, 5e-5, is meant for AdamW and does not count. For a preset
    whose learning rate depends on the run length, ``num_steps`` is ``args.max_steps`` if that is set; with
    ``num_train_epochs`` the arguments don't tell the length, so give ``num_steps`` here.

    Args:
        args: the training arguments. Their weight decay is not used, since norms are fixed; one other than
            0 triggers a warning.
        options: those of [`Nero`][nero.Nero].

    Example:
        >>> from transformers import TrainingArguments
        >>> from nero.integrations.huggingface import nero_for
        >>> args = TrainingArguments(learning_rate=0.01, use_cpu=True, report_to=[])
        >>> nero_for(args, constraint="initial")[1]
        {'lr': 0.01, 'constraint': 'initial'}
        >>> args = TrainingArguments(max_steps=2000, use_cpu=True, report_to=[])
        >>> nero_for(args, preset="polar")[1]
        {'num_steps': 2000, 'preset': 'polar'}
    """
    if not isinstance(args, TrainingArguments):
        raise TypeError(f"args must be TrainingArguments, not {kind_of(args)}: pass the Trainer's")
    if args.weight_decay:
        warn_user(
            f"weight_decay={args.weight_decay:g} of the training arguments has no effect: Nero fixes the "
            "norm of every neuron; set it to 0, and to regularize, see gain_penalty"
        )
    options = {name: value for name, value in options.items() if value is not None}
    fields = args.__dataclass_fields__  # those of TRL have defaults of their own
    has_rate = args.learning_rate != fields["learning_rate"].default
    follows_length = find_preset(options.get("preset", "paper")).num_steps is not None
    if "lr" not in options and has_rate:
        return NeroFactory, {"lr": args.learning_rate, **options}
    if not {"lr", "num_steps"} & options.keys() and follows_length and args.max_steps > 0:
        return NeroFactory, {"num_steps": args.max_steps, **options}
    return NeroFactory, options


class TurningCallback(TrainerCallback):
    """Watches the optimizer that a Trainer builds, which exists only once it trains.

    Args:
        options: those of [`TurningMonitor`][nero.diagnostics.TurningMonitor]: ``every``, ``sinks``, ...

    Example:
        >>> from nero.integrations.huggingface import TurningCallback
        >>> callback = TurningCallback(every=50)  # Trainer(..., callbacks=[callback])
    """

    monitor: TurningMonitor | None = None
    """The monitor of the run, from its beginning on."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Begin to watch the optimizer, inside of what wraps it."""
        optimizer = getattr(kwargs["optimizer"], "optimizer", kwargs["optimizer"])
        self.monitor = TurningMonitor(optimizer, kwargs["model"], **self.options)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Stop watching."""
        if self.monitor is not None:
            self.monitor.close()
