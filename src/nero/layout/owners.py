"""The layouts that modules state for the parameters they own."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils.parametrizations import _Orthogonal, _SpectralNorm, _WeightNorm
from torch.nn.utils.parametrize import ParametrizationList

from nero.core.arguments import kind_of
from nero.core.neurons import GAIN, OTHER, Layout, LayoutError
from nero.layout.guess import guess_biases, guess_layout
from nero.layout.named import Authority, NamedLayout, decide_by_override, in_words
from nero.layout.outputs import tie
from nero.layout.registry import find_rule, shown_name


class _Statement(NamedTuple):
    """An owner's statement about a parameter."""

    layout: Layout
    reason: str
    authority: Authority = "rule"
    is_doubtful: bool = False


def stated_layouts(model: nn.Module) -> list[NamedLayout]:
    """Return the layout that modules state for every parameter of ``model.parameters()``."""
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a torch.nn.Module, not {kind_of(model)}: layouts come from modules, so "
            "pass an instance of the model itself, not its class or its parameters"
        )
    yielded = _yielded(model)
    stated: dict[nn.Parameter, NamedLayout] = {}
    for position, (name, param, statement) in enumerate(_walk(model)):
        layout, reason, authority, is_doubtful = statement
        if param not in yielded:
            continue  # parameters() leaves it out, for example in a frozen backbone
        first = stated.get(param)
        if first is None:
            stated[param] = NamedLayout(
                *(name, param, layout, reason),
                authority=authority,
                is_doubtful=is_doubtful,
                registered_at=position,
            )
            continue
        stated[param] = replace(
            tie(first, layout),
            authority="guess" if first.authority == authority == "guess" else "tie",
            registered_at=position,
            reason=f"{first.reason}; tied to {name}",
            other_names=(*first.other_names, name),
            conflict=first.conflict
            if layout.has_dims_of(first.layout)
            else _conflict(first, name, layout, reason),
        )
    return list(stated.values())


def _yielded(model: nn.Module) -> set[Tensor]:
    """Return the set of ``model.parameters()``, which some models override to leave out frozen ones."""
    yielded = [*model.parameters()]
    for item in yielded:
        if not isinstance(item, Tensor):
            raise TypeError(
                f"{type(model).__name__}.parameters() yields {kind_of(item)}, which is no parameter: call "
                "nero.annotate on the modules inside, and pass the yielded groups"
            )
    return set(yielded)


def _conflict(first: NamedLayout, name: str, layout: Layout, reason: str) -> str:
    return (
        f"`{first.name}` and `{name}` are one tied parameter, but {first.reason} says "
        f"{in_words(first.layout)} and {reason} says {in_words(layout)}; {decide_by_override(first.name)}"
    )


def _walk(model: nn.Module) -> Iterator[tuple[str, nn.Parameter, _Statement]]:
    modules = dict(model.named_modules())
    for path, module in modules.items():
        # Bypasses the module's own named_parameters(), which may leave some out; torch respects that
        # override only for the model itself.
        own = nn.Module.named_parameters(module, recurse=False, remove_duplicate=False)
        for local_name, param in own:
            name = f"{path}.{local_name}" if path else local_name
            if isinstance(param, UninitializedParameter):
                raise LayoutError(
                    f"`{name}` has no shape yet: run the model once before building the optimizer"
                )
            if isinstance(module, ParametrizationList):
                owner_path, _, tensor_name = path.rpartition("parametrizations.")
                owner = modules[owner_path.rstrip(".")]
                statement = _parametrized(owner, module, tensor_name, local_name, param)
            else:
                statement = _table_of_biases(path, param, _owned(module, local_name, param, path))
            yield name, param, statement


def _table_of_biases(path: str, param: nn.Parameter, statement: _Statement) -> _Statement:
    if statement.layout.role != "embedding" or statement.authority == "guess":
        return statement
    guess = guess_biases(param.shape, path.rpartition(".")[2])
    if guess is None:
        return statement
    layout, why, is_doubtful = guess
    authority: Authority = "guess" if is_doubtful else "rule"
    return _Statement(layout, f"{statement.reason}; {why}", authority, is_doubtful)


def _owned(module: nn.Module, name: str, param: nn.Parameter, path: str = "") -> _Statement:
    rule = find_rule(module, name)
    if rule is not None:
        return _Statement(*rule)
    return _reparametrized_by_hook(module, name) or _unknown(module, name, param, path)


def _reparametrized_by_hook(module: nn.Module, name: str) -> _Statement | None:
    # torch.nn.utils.weight_norm leaves weight_g and weight_v, spectral_norm and prune weight_orig.
    base, _, suffix = name.rpartition("_")
    rule = find_rule(module, base) if base else None
    if rule is None or suffix not in ("g", "v", "orig"):
        return None
    layout, owner = rule
    if suffix == "g":
        return _Statement(GAIN, f"{owner} with weight norm: the length of {base}")
    return _Statement(layout, f"{owner}, behind a reparametrized {base}")


def _parametrized(
    owner: nn.Module,
    parametrization: ParametrizationList,
    tensor_name: str,
    name: str,
    param: nn.Parameter,
) -> _Statement:
    cls = shown_name(owner)
    if any(isinstance(part, _Orthogonal) for part in parametrization):
        return _Statement(
            OTHER, f"{cls}: it generates the orthogonal {tensor_name}, so no row is a neuron"
        )
    if name == "original0" and isinstance(parametrization[0], _WeightNorm):
        return _Statement(GAIN, f"{cls} with weight norm: the length of {tensor_name}")
    statement = _owned(owner, tensor_name, param)
    if isinstance(parametrization[0], _WeightNorm) or all(
        isinstance(part, _SpectralNorm) for part in parametrization
    ):
        return statement._replace(reason=f"{statement.reason}, behind a parametrized {tensor_name}")
    if statement.layout.neuron_dims is None:
        return statement
    # The original may be the weight itself, as with a mask, or generate it, as for a symmetric weight.
    made_by = shown_name(parametrization[0])
    why = f"{made_by} makes the {tensor_name} of {cls} from it; in doubt, it is treated elementwise"
    return _Statement(OTHER, why, "guess", is_doubtful=True)


def _unknown(module: nn.Module, name: str, param: nn.Parameter, path: str) -> _Statement:
    """Guess the layout for an unregistered module, and say so in the reason."""
    cls = shown_name(module)
    # Hugging Face marks experts that are stored as (expert, in, out).
    is_transposed = getattr(module, "is_transposed", None) is True
    guess = guess_layout(
        param, name, cls, path=path, siblings=module._parameters, is_transposed=is_transposed
    )
    reason = f"{cls} is not registered; {guess.reason}"
    return _Statement(guess.layout, reason, "guess", guess.is_doubtful)
