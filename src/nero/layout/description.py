"""Describe how the optimizer treats every parameter of a model, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from nero.core.arguments import check_real
from nero.core.held import is_range
from nero.core.neurons import NEURON_ROLES, LayoutError, Neurons, neurons_from_options
from nero.core.presets import PresetName, find_preset, read_rate, resolve_options
from nero.core.spec import STATE, Hyper
from nero.core.sphere import Sphere
from nero.layout.groups import Overrides, resolve
from nero.layout.named import NamedLayout
from nero.layout.outputs import IS_OUTPUT, without_mark
from nero.tables import aligned

# Optimizer options with no effect on the description.
_IGNORED = ("lr", "weight_decay", "foreach", "fused")
COLUMNS = ("parameter", "shape", "role", "neurons", "fan-in", "constraint", "state", "why")


@dataclass(frozen=True)
class Row:
    """How one parameter is treated."""

    name: str
    shape: tuple[int, ...]
    role: str
    num_neurons: int
    fan_in: int
    constraint: str
    state_bytes: int
    reason: str

    def cells(self) -> tuple[str, ...]:
        """Return the row as text, one cell per column."""
        shape = "x".join(map(str, self.shape)) or "scalar"
        state = f"{self.state_bytes:,} B"
        sizes = f"{self.num_neurons:,}", f"{self.fan_in:,}"
        return (self.name, shape, self.role, *sizes, self.constraint, state, self.reason)


@dataclass(frozen=True)
class Description:
    """The table returned by [`describe`][nero.describe]: print it, or read ``rows``."""

    rows: tuple[Row, ...]
    num_parameters: int
    adam_state_bytes: int
    """Adam's state: two numbers of the weight's dtype per trainable weight."""

    @property
    def state_bytes(self) -> int:
        """Bytes of optimizer state."""
        return sum(row.state_bytes for row in self.rows)

    def summary(self) -> str:
        """Return the totals as one line."""
        neurons = sum(row.num_neurons for row in self.rows if row.role in NEURON_ROLES)
        share = ""
        if self.adam_state_bytes:
            share = f", {self.state_bytes / self.adam_state_bytes:.2%} of Adam's"
        return (
            f"{self.num_parameters:,} parameters, {neurons:,} neurons, "
            f"{self.state_bytes:,} bytes of state{share}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the table as plain values, for JSON."""
        return {
            "parameters": [vars(row) for row in self.rows],
            "num_parameters": self.num_parameters,
            "state_bytes": self.state_bytes,
            "adam_state_bytes": self.adam_state_bytes,
        }

    def __str__(self) -> str:
        table = [COLUMNS, *(row.cells() for row in self.rows)]
        return f"{aligned(table, left=range(len(COLUMNS)))}\n\n{self.summary()}"


def describe(
    model: nn.Module,
    *,
    constraint: Sphere | str | None = None,
    preset: PresetName = "paper",
    overrides: Overrides = (),
    example: Any = None,
    **options: Any,
) -> Description:
    """Describe how [`Nero`][nero.Nero] treats every parameter of ``model``, and why.

    Args:
        model: the model; it is not changed.
        constraint: as given to the optimizer.
        preset: as given to the optimizer.
        overrides: as given to the optimizer.
        example: as given to the optimizer.
        options: the optimizer's other options; its state may depend on them.

    Raises:
        TypeError: if an option is unknown, or a parameter's dtype is not supported.

    Example:
        >>> print(nero.describe(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))))
        parameter  shape  role    neurons  fan-in  constraint      state  why
        0.weight   3x4    neuron  3        4       mean 0, norm 1  28 B   Linear
        0.bias     3      bias    3        1       none            32 B   Linear
        1.weight   3      gain    3        1       none            32 B   BatchNorm1d
        1.bias     3      bias    3        1       none            32 B   BatchNorm1d
        <BLANKLINE>
        21 parameters, 3 neurons, 124 bytes of state, 73.81% of Adam's
    """
    names = (*Hyper._field_defaults, *_IGNORED)
    for name in options.keys() - {*names}:
        raise TypeError(
            f"describe got an unknown option {name!r}; the options are {', '.join(names)}"
        )
    read_rate(options.get("lr"))
    given = {name: value for name, value in options.items() if name in Hyper._fields}
    given["constraint"] = constraint
    chosen = [name for name, value in given.items() if value is not None]
    mark = IS_OUTPUT if find_preset(preset).marks_outputs(chosen) else {}
    rows = []
    for named, _, marked in resolve(model, overrides, example, mark):
        own, is_output = without_mark(marked)
        role = named.layout.role
        rows.append(
            _row(named, resolve_options(preset, given, role=role, is_output=is_output, own=own))
        )
    params = list(model.parameters())
    adam_state_bytes = sum(2 * p.numel() * p.element_size() for p in params if p.requires_grad)
    return Description(tuple(rows), sum(p.numel() for p in params), adam_state_bytes)


def _row(named: NamedLayout, options: Mapping[str, Any]) -> Row:
    param, layout, reason = named.param, named.layout, named.reason
    neurons = layout.at(param.shape)
    chosen = Hyper.read(options)
    hyper = chosen.for_neurons(neurons)
    if layout.neuron_dims is not None and neurons.is_elementwise:
        reason += "; fan-in 1: no balanced neuron exists, so it is treated elementwise"
    elif hyper.constraint.centre != chosen.constraint.centre and not neurons.is_elementwise:
        reason += "; fan-in 2: fixing mean and norm would leave two points, so the mean is free"
    if hyper.direction != "gradient":
        reason += f"; turns against its {hyper.direction} direction"
    state_bytes = 0
    if param.requires_grad:
        check_real(f"`{named.name}`", param)
        state_bytes = sum(
            spec.num_bytes(neurons, param.numel(), param.dtype, hyper)
            for spec in STATE.values()
            if spec.exists(neurons, hyper)
        )
    else:
        reason = f"{reason}; frozen"
    return Row(
        named.name,
        tuple(param.shape),
        layout.role,
        neurons.num_neurons,
        neurons.fan_in,
        str(hyper.constraint),
        state_bytes,
        reason,
    )


def _neurons_of(group: Mapping[str, Any], param: Tensor) -> Neurons | None:
    try:
        return None if is_range(param) else neurons_from_options(group, param.shape)
    except LayoutError:  # an engine has flattened the parameters
        return None


def groups_table(groups: Sequence[Mapping[str, Any]]) -> str:
    """Return one line per param group: its size, and the options that act on it."""
    rows = [("group", "role", "parameters", "weights", "lr", "constraint", "options")]
    for index, group in enumerate(groups):
        params = group["params"]
        first = _neurons_of(group, params[0]) if params else None
        hyper = Hyper.read(group)
        hyper = hyper.for_neurons(first) if first is not None else hyper
        others = [
            f"{name}={value}"
            for name, value in hyper._asdict().items()
            if name != "constraint" and value != Hyper._field_defaults[name]
        ]
        sizes = f"{len(params):,}", f"{sum(param.numel() for param in params):,}"
        role, lr = group["role"] or "by shape", f"{float(group['lr']):g}"
        rows.append((f"{index}", role, *sizes, lr, str(hyper.constraint), ", ".join(others)))
    return aligned(rows, left=(0, 1, 5, 6))
