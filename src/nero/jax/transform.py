"""Nero as an optax `GradientTransformation`, and the projection to call before it."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from jax import Array

from nero.core.neurons import Neurons
from nero.core.presets import PresetName, find_preset, resolve_options, warn_of_no_outputs
from nero.core.spec import (
    Hyper,
    Norm,
    finite_positive,
    flag,
    learning_rate,
    non_negative,
    norm_name,
    unit_interval,
)
from nero.core.sphere import Sphere, as_constraint
from nero.core.warn import warn_user
from nero.jax.layouts import Layouts, find_layouts, is_nnx, named_leaves, resolve
from nero.jax.rule import (
    State,
    initial_state,
    is_off,
    nero_update,
    project_array,
    working_dtype,
)

Rate: TypeAlias = float | Array | Callable[[Array], Any]


class NeroState(NamedTuple):
    """Nero's state: two counters, and every parameter's state by path.

    Example:
        >>> import jax.numpy as jnp, nero.jax
        >>> state = nero.jax.nero().init({"Dense_0": {"bias": jnp.zeros(3)}})
        >>> int(state.step), sorted(state.params["Dense_0/bias"])
        (0, ['exp_avg_norm', 'num_skipped', 'scale'])
    """

    num_calls: Array
    """Number of calls, which is passed to schedules."""
    step: Array
    """Number of updates, not counting calls at a learning rate of zero."""
    params: dict[str, State]
    """``exp_avg_norm``, ``num_skipped``, and for some parameters ``scale``, ``radius``, ``exp_avg``."""


def nero(
    lr: Rate | None = None,
    beta: float | Array | None = None,
    *,
    norm: Norm | None = None,
    preset: PresetName = "paper",
    momentum: float | Array | None = None,
    bias_scale: float | Array | None = None,
    constraint: Sphere | str | None = None,
    gain_penalty: float | Array | None = None,
    maximize: bool | None = None,
    layouts: Layouts | None = None,
    outputs: Collection[str] | None = None,
) -> optax.GradientTransformation:
    """Turn every neuron by an angle, and keep it balanced: [`nero.Nero`][nero.Nero] for optax.

    Call [`project`][nero.jax.project] on the parameters first. The torch optimizer does that in its
    constructor, but ``init`` cannot return parameters.

    Args:
        lr: the angle in radians by which neurons turn at a step, or a schedule; the preset's by default.
        beta: decay rate of the squared gradient norm; the preset's by default.
        norm: the running norm that divides a step, as for [`nero.Nero`][nero.Nero]; the preset's by
            default.
        preset: ``"paper"`` or ``"rows"``, as for [`nero.Nero`][nero.Nero]; it decides options that are
            left out or ``None``.
        momentum: decay rate of the momentum buffer; the preset's by default.
        bias_scale: the scale of parameters without fan-in that start at zero; 0.01 by default.
        constraint: the constraint on neurons, as for [`nero.Nero`][nero.Nero]; balanced by default.
        gain_penalty: strength of a quadratic penalty that pulls gains towards one (section 5.6).
        maximize: maximize the objective instead of minimizing it.
        layouts: every parameter's layout: a tree of `nero.layout.Layout` in the structure of the
            parameters, a mapping by path, or an nnx module. By default inferred from Flax's names.
        outputs: the paths of output layers, such as ``["Dense_1/kernel"]``; ``[]`` if there are none. A
            preset may have options for them, and a tree of arrays does not show which they are.

    Returns:
        A transformation whose ``update`` needs the parameters.

    Note:
        optax adds updates to parameters, so the last operation of a step is ``w + (new - w)``. The
        difference of two nearby numbers is exact; otherwise a weight is off by half a unit in the last
        place of its *change*. Errors do not accumulate, since every step projects again: neurons stay as
        balanced as their dtype allows. Updates of bfloat16 parameters are float32, so they are not rounded.

    Example:
        >>> import jax, jax.numpy as jnp, optax, nero.jax
        >>> params = {"Dense_0": {"kernel": jax.random.normal(jax.random.key(0), (8, 4))}}
        >>> params = nero.jax.project(params)
        >>> tx = nero.jax.nero(lr=0.01)
        >>> state = tx.init(params)
        >>> grads = jax.grad(lambda p: jnp.sum(p["Dense_0"]["kernel"] ** 3))(params)
        >>> updates, state = tx.update(grads, state, params)
        >>> params = optax.apply_updates(params, updates)
        >>> [round(float(norm), 6) for norm in jnp.linalg.norm(params["Dense_0"]["kernel"], axis=0)]
        [1.0, 1.0, 1.0, 1.0]
    """
    given = {
        "lr": lr,
        "beta": beta,
        "norm": norm,
        "momentum": momentum,
        "bias_scale": bias_scale,
        "constraint": None if constraint is None else as_constraint(constraint),
        "gain_penalty": gain_penalty,
        "maximize": maximize,
    }
    options = resolve_options(preset, given)
    if options["direction"] != "gradient":
        raise ValueError(
            f"preset={preset!r} turns neurons against polar directions, which nero.jax does not support "
            "yet: use preset='rows'"
        )
    lr = options["lr"]
    if not callable(lr):
        _read(learning_rate, "lr", lr)
    numbers = {
        "beta": unit_interval,
        "momentum": unit_interval,
        "bias_scale": finite_positive,
        "gain_penalty": non_negative,
    }

    def hyper_of(role: str | None, is_output: bool = False) -> Hyper:
        options = resolve_options(preset, given, role=role, is_output=is_output)
        return Hyper(
            **{name: _read(reader, name, options[name]) for name, reader in numbers.items()},
            norm=norm_name("norm", options["norm"]),
            constraint=options["constraint"],
            maximize=flag("maximize", options["maximize"]),
        )

    penalty = hyper_of(
        None
    ).gain_penalty  # this also checks every option before there are parameters
    # Read an nnx module now, so that nothing keeps it alive.
    layouts = find_layouts(layouts) if is_nnx(layouts) else layouts

    def plan_for(params: Any) -> dict[str, tuple[Neurons, Hyper]]:
        all_neurons = resolve(params, layouts)
        unknown = sorted({*(outputs or ())} - all_neurons.keys())
        if unknown:
            raise ValueError(
                f"outputs has `{unknown[0]}`, but the parameters are {sorted(all_neurons)}"
            )
        return {
            path: (neurons, hyper_of(neurons.role, path in (outputs or ())).for_neurons(neurons))
            for path, neurons in all_neurons.items()
        }

    def init(params: Any) -> NeroState:
        if layouts is None:
            find_layouts(params)  # for its warning
        plan, leaves = plan_for(params), named_leaves(params)
        if outputs is None:
            _warn_without_outputs(preset, given, plan)
        _warn_unbalanced(leaves, plan)
        has_penalty = not isinstance(penalty, Array) and penalty > 0
        if has_penalty and all(neurons.role != "gain" for neurons, _ in plan.values()):
            warn_user("gain_penalty has no effect: no parameter has the role gain")
        states = {path: initial_state(leaf, *plan[path]) for path, leaf in leaves.items()}
        return NeroState(jnp.zeros((), jnp.int32), jnp.zeros((), jnp.int32), states)

    def update(grads: Any, state: NeroState, params: Any = None) -> tuple[Any, NeroState]:
        if params is None:
            raise ValueError("params is missing: call update(grads, state, params)")
        plan, leaves, grad_of = plan_for(params), named_leaves(params), named_leaves(grads)
        _check(leaves, grad_of, state, plan)
        rate = jnp.asarray(lr(state.num_calls) if callable(lr) else lr)
        step = jnp.where(rate != 0, state.step + 1, state.step)
        updates, new_states = [], {}
        for path, leaf in leaves.items():
            neurons, options = plan[path]
            new, new_states[path] = nero_update(
                leaf, grad_of[path], state.params[path],
                neurons=neurons, step=step, lr=rate, hyper=options,
            )  # fmt: skip
            dtype = working_dtype(leaf)
            # An unchanged weight has an update of zero, even if it is inf.
            updates.append(jnp.where(new == leaf, 0, new.astype(dtype) - leaf.astype(dtype)))
        changes = jax.tree.unflatten(jax.tree.structure(params), updates)
        return changes, NeroState(state.num_calls + 1, step, new_states)

    return optax.GradientTransformation(init, update)


def project(
    params: Any,
    layouts: Layouts | None = None,
    *,
    preset: PresetName = "paper",
    constraint: Sphere | str | None = None,
) -> Any:
    """Project every neuron in a parameter tree onto its constraint.

    Neurons that already obey it stay bit-identical; so do those that are zero, constant or not finite, and
    parameters without fan-in.

    Args:
        params: a tree of arrays.
        layouts: as for [`nero`][nero.jax.nero].
        preset: as for [`nero`][nero.jax.nero].
        constraint: as for [`nero`][nero.jax.nero].

    Example:
        >>> import jax.numpy as jnp
        >>> from nero.jax import project
        >>> project({"Dense_0": {"kernel": jnp.array([[3.0], [0.0], [0.0], [1.0]])}}, constraint="norm")
        {'Dense_0': {'kernel': Array([[0.94868326], [0.        ], [0.        ], [0.31622776]], ...)}}
    """
    if layouts is None or is_nnx(layouts):
        layouts = find_layouts(params if layouts is None else layouts)
    given = {"constraint": None if constraint is None else as_constraint(constraint)}
    new = []
    all_neurons = resolve(params, layouts)
    for path, leaf in named_leaves(params).items():
        neurons = all_neurons[path]
        sphere = resolve_options(preset, given, role=neurons.role)["constraint"]
        sphere = sphere.for_fan_in(neurons.fan_in)
        new.append(project_array(leaf, neurons=neurons, constraint=sphere))
    return jax.tree.unflatten(jax.tree.structure(params), new)


def _read(reader: Callable[[str, Any], Any], name: str, value: Any) -> Any:
    # Arrays, as passed by inject_hyperparams, may be traced, so their values are not checked.
    if not isinstance(value, Array):
        return reader(name, value)
    if value.size != 1:
        raise ValueError(f"{name} must be one number, but has the shape {value.shape}")
    return value


def _warn_without_outputs(
    preset: str, given: dict[str, Any], plan: dict[str, tuple[Neurons, Hyper]]
) -> None:
    layers = [path for path, (neurons, _) in plan.items() if neurons.role == "neuron"]
    chosen = [name for name, value in given.items() if value is not None]
    if layers and find_preset(preset).marks_outputs(chosen):
        warn_of_no_outputs(
            preset,
            f"pass its path, such as outputs=[{layers[-1]!r}], or outputs=[] if there is none",
        )


def _warn_unbalanced(leaves: dict[str, Array], plan: dict[str, tuple[Neurons, Hyper]]) -> None:
    for path, leaf in leaves.items():
        if isinstance(leaf, jax.core.Tracer):
            continue
        neurons, hyper = plan[path]
        projected = project_array(leaf, neurons=neurons, constraint=hyper.constraint)
        if not jnp.array_equal(projected, leaf, equal_nan=True):
            warn_user(
                f"`{path}` has neurons that do not obey the constraint ({hyper.constraint}); call params = "
                "nero.jax.project(params, preset=..., layouts=...) before init, with the same preset, "
                "constraint and layouts as nero(...); otherwise the first step moves them far"
            )
            return


def _check(
    leaves: dict[str, Array],
    grad_of: dict[str, Array],
    state: NeroState,
    plan: dict[str, tuple[Neurons, Hyper]],
) -> None:
    for path, leaf in leaves.items():
        if path not in grad_of:
            raise ValueError(f"grads has no `{path}`; it needs the same tree structure as params")
        if grad_of[path].shape != leaf.shape:
            raise ValueError(
                f"the gradient of `{path}` has the shape {grad_of[path].shape}, not {leaf.shape}"
            )
        if path not in state.params:
            raise ValueError(
                f"state has no `{path}`: it belongs to other parameters; call init(params)"
            )
        _, hyper = plan[path]
        needed = {
            "exp_avg": not is_off(hyper.momentum),
            "radius": hyper.constraint.radius == "initial",
        }
        for key in [key for key, is_needed in needed.items() if is_needed]:
            if key not in state.params[path]:
                raise ValueError(
                    f"the state of `{path}` has no {key}: it was made with other options; call init(params)"
                )
