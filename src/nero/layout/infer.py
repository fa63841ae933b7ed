"""What modules say of the parameters that they own."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils.parametrizations import _Orthogonal, _SpectralNorm, _WeightNorm
from torch.nn.utils.parametrize import ParametrizationList

import nero.layout.huggingface
import nero.layout.modules  # noqa: F401  (they fill the registry)
from nero.core.arguments import kind_of
from nero.core.neurons import GAIN, OTHER, Layout, LayoutError
from nero.layout.guess import guess_biases, guess_layout
from nero.layout.registry import find_rule, shown_name

Authority: TypeAlias = Literal["override", "tie", "rule", "observation", "guess"]
"""What a layout rests on: the user's word, modules that share the parameter, a registered class, a forward
pass, or only a name and a shape."""


@dataclass(frozen=True)
class NamedLayout:
    """A parameter, its name, its layout, and the reason for it."""

    name: str
    param: nn.Parameter
    layout: Layout
    reason: str
    other_names: tuple[str, ...] = ()
    """Further names of a tied parameter."""
    conflict: str = ""
    """Why its owners or its uses disagree; only an override can decide then."""
    authority: Authority = "rule"
    is_doubtful: bool = False
    """Whether its elements stand alone only because nothing tells what its neurons are."""
    place: int = 0
    """How many parameters are registered before its last owner."""
    is_tied: bool = False
    """Whether it is an embedding that serves as an output layer, too, wherever it is registered."""
    is_end: bool | None = None
    """Whether a forward pass used it as a layer that no other follows; ``None`` if none has reached it."""
    is_seen: bool = False
    """Whether a whole forward pass was watched."""
    is_output: bool = False
    """Whether it is an output layer."""

    @property
    def is_guess(self) -> bool:
        """Whether only its name and its shape speak for the layout."""
        return self.authority == "guess"


class _Found(NamedTuple):
    """What the owner of a parameter says of it."""

    layout: Layout
    reason: str
    is_guess: bool = False
    is_doubtful: bool = False


def stated_layouts(model: nn.Module) -> list[NamedLayout]:
    """Return what modules say of every parameter that ``model.parameters()`` yields.

    Where modules tie a parameter, all must agree on the dims; its first owner gives the role, but an
    embedding that is a layer of neurons as well has the role of one.

    Example:
        >>> from nero.layout.infer import stated_layouts
        >>> [(each.name, each.authority) for each in stated_layouts(nn.Linear(4, 3))]
        [('weight', 'rule'), ('bias', 'rule')]
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a torch.nn.Module, not {kind_of(model)}: layouts are found from modules, so "
            "pass an instance of the model itself, not its class or its parameters"
        )
    yielded = _yielded(model)
    found: dict[nn.Parameter, NamedLayout] = {}
    for place, (name, param, owned) in enumerate(_walk(model)):
        layout, reason, is_guess, is_doubtful = owned
        if param not in yielded:
            continue  # the model leaves it to others, such as a frozen backbone
        first = found.get(param)
        if first is None:
            by: Authority = "guess" if is_guess else "rule"
            found[param] = NamedLayout(
                *(name, param, layout, reason), authority=by, is_doubtful=is_doubtful, place=place
            )
            continue
        is_layer = {first.layout.role, layout.role} == {"embedding", "neuron"}
        found[param] = replace(
            first,
            layout=replace(first.layout, role="neuron") if is_layer else first.layout,
            authority="guess" if first.is_guess and is_guess else "tie",
            place=place,
            is_tied=first.is_tied or is_layer,
            reason=f"{first.reason}; tied to {name}",
            other_names=(*first.other_names, name),
            conflict=first.conflict
            if layout.has_dims_of(first.layout)
            else _conflict(first, name, layout, reason),
        )
    return list(found.values())


def _yielded(model: nn.Module) -> set[Tensor]:
    """Return what ``model.parameters()`` yields: some models leave out what is not to be trained."""
    yielded = [*model.parameters()]
    for item in yielded:
        if not isinstance(item, Tensor):
            raise TypeError(
                f"{type(model).__name__}.parameters() yields {kind_of(item)}, which is no parameter: call "
                "nero.annotate on the modules inside, and pass what it yields"
            )
    return set(yielded)


def _conflict(first: NamedLayout, name: str, layout: Layout, reason: str) -> str:
    return (
        f"`{first.name}` and `{name}` are one tied parameter, but {first.reason} says "
        f"{in_words(first.layout)} and {reason} says {in_words(layout)}; {decide_by_override(first.name)}"
    )


def _walk(model: nn.Module) -> Iterator[tuple[str, nn.Parameter, _Found]]:
    modules = dict(model.named_modules())
    for path, module in modules.items():
        for local_name, param in _own_parameters(module):
            name = f"{path}.{local_name}" if path else local_name
            if isinstance(param, UninitializedParameter):
                raise LayoutError(
                    f"`{name}` has no shape yet: run the model once before building the optimizer"
                )
            if isinstance(module, ParametrizationList):
                owner_path, _, tensor_name = path.rpartition("parametrizations.")
                owner = modules[owner_path.rstrip(".")]
                yield name, param, _parametrised(owner, module, tensor_name, local_name, param)
            else:
                yield (
                    name,
                    param,
                    _table_of_biases(path, param, _owned(module, local_name, param, path)),
                )


def _own_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    # A class may override it to leave some out, which torch heeds only of the model itself.
    return nn.Module.named_parameters(module, recurse=False, remove_duplicate=False)


def _table_of_biases(path: str, param: nn.Parameter, found: _Found) -> _Found:
    if found.layout.role != "embedding" or found.is_guess:
        return found
    guess = guess_biases(param.shape, path.rpartition(".")[2])
    if guess is None:
        return found
    layout, why, is_doubtful = guess
    return _Found(layout, f"{found.reason}; {why}", is_guess=is_doubtful, is_doubtful=is_doubtful)


def _owned(module: nn.Module, name: str, param: nn.Parameter, path: str = "") -> _Found:
    rule = find_rule(module, name)
    if rule is not None:
        return _Found(*rule)
    return _reparametrised_by_hook(module, name) or _unknown(module, name, param, path)


def _reparametrised_by_hook(module: nn.Module, name: str) -> _Found | None:
    # torch.nn.utils.weight_norm leaves weight_g and weight_v, spectral_norm and prune weight_orig.
    base, _, suffix = name.rpartition("_")
    rule = find_rule(module, base) if base else None
    if rule is None or suffix not in ("g", "v", "orig"):
        return None
    layout, owner = rule
    if suffix == "g":
        return _Found(GAIN, f"{owner} with weight norm: the length of {base}")
    return _Found(layout, f"{owner}, behind a reparametrised {base}")


def _parametrised(
    owner: nn.Module,
    parametrization: ParametrizationList,
    tensor_name: str,
    name: str,
    param: nn.Parameter,
) -> _Found:
    cls = shown_name(owner)
    if any(isinstance(each, _Orthogonal) for each in parametrization):
        return _Found(
            OTHER, f"{cls}: it generates the orthogonal {tensor_name}, so no row is a neuron"
        )
    if name == "original0" and isinstance(parametrization[0], _WeightNorm):
        return _Found(GAIN, f"{cls} with weight norm: the length of {tensor_name}")
    found = _owned(owner, tensor_name, param)
    if isinstance(parametrization[0], _WeightNorm) or all(
        isinstance(each, _SpectralNorm) for each in parametrization
    ):
        return found._replace(reason=f"{found.reason}, behind a parametrised {tensor_name}")
    if found.layout.neuron_dims is None:
        return found
    # The original may be the weight, as with a mask, or generate it, as that of a symmetric one.
    made_by = shown_name(parametrization[0])
    why = f"{made_by} makes the {tensor_name} of {cls} from it; in doubt every element stands alone"
    return _Found(OTHER, why, is_guess=True, is_doubtful=True)


def _unknown(module: nn.Module, name: str, param: nn.Parameter, path: str) -> _Found:
    """Guess for a module that nobody registered, and say so in the reason."""
    cls = shown_name(module)
    # Hugging Face marks experts that are stored as (expert, in, out).
    is_transposed = getattr(module, "is_transposed", None) is True
    guess = guess_layout(
        param, name, cls, path=path, siblings=module._parameters, is_transposed=is_transposed
    )
    reason = f"{cls} is not registered; {guess.reason}"
    return _Found(guess.layout, reason, is_guess=True, is_doubtful=guess.is_doubtful)


def in_words(layout: Layout) -> str:
    """Return what messages call a layout."""
    return layout.role if layout.neuron_dims is None else f"neurons along dims {layout.neuron_dims}"


def decide_by_override(name: str) -> str:
    """Return what messages say where only the user can tell what the neurons of a parameter are."""
    return f'decide with an override, for example overrides=[("{name}", {{"neuron_dims": (0,)}})]'
