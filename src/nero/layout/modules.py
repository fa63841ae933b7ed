"""Layouts of torch's own modules: the dims that index neurons, per parameter."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from nero.core.neurons import BIAS, EMBEDDING, GAIN, OTHER, Layout, neurons

Rules: TypeAlias = Mapping[str, Layout | Callable[[nn.Module], Layout]]
"""Maps parameter name patterns to layouts, or to functions of the module that return one."""
ModuleKey: TypeAlias = type[nn.Module] | str
"""A module class, or its full dotted name."""


def _conv_transpose(module: nn.Module) -> Layout:
    assert isinstance(module, _ConvTransposeNd)
    return neurons(1, num_groups=module.groups)  # (in, out/groups, ...)


_NORM: Rules = {"weight": GAIN, "bias": BIAS}
_RECURRENT: Rules = {"weight_*": neurons(0), "bias_*": BIAS}  # (gates*hidden, in)

TORCH: dict[ModuleKey, Rules] = {
    nn.Linear: {"weight": neurons(0), "bias": BIAS},  # (out, in)
    nn.Bilinear: {"weight": neurons(0), "bias": BIAS},  # (out, in1, in2)
    _ConvNd: {"weight": neurons(0), "bias": BIAS},  # (out, in/groups, ...)
    _ConvTransposeNd: {"weight": _conv_transpose, "bias": BIAS},
    nn.Embedding: {"weight": EMBEDDING},  # (token, features)
    nn.EmbeddingBag: {"weight": EMBEDDING},
    nn.MultiheadAttention: {
        "*proj_weight": neurons(0),  # in_proj (3*embed, embed), or q_, k_ and v_proj
        "in_proj_bias": BIAS,
        "bias_[kv]": neurons(0, 1),  # (1, 1, embed): a learned token, not a bias
    },
    nn.RNNBase: _RECURRENT,
    nn.RNNCellBase: _RECURRENT,
    **dict.fromkeys((_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm), _NORM),
    nn.PReLU: {"weight": OTHER},  # a slope
}
