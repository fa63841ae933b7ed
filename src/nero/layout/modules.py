"""The layouts of torch's own modules.

Read it as a table: a module, its parameters, the dims that index neurons.
"""

from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from nero.core.neurons import BIAS, EMBEDDING, GAIN, OTHER, Layout, neurons
from nero.layout.registry import register_layout


def _conv_transpose(module: nn.Module) -> Layout:
    assert isinstance(module, _ConvTransposeNd)
    return neurons(1, num_groups=module.groups)  # (in, out/groups, ...)


register_layout(nn.Linear, {"weight": neurons(0), "bias": BIAS})  # (out, in)
register_layout(nn.Bilinear, {"weight": neurons(0), "bias": BIAS})  # (out, in1, in2)
register_layout(_ConvNd, {"weight": neurons(0), "bias": BIAS})  # (out, in/groups, ...)
register_layout(_ConvTransposeNd, {"weight": _conv_transpose, "bias": BIAS})
register_layout(nn.Embedding, {"weight": EMBEDDING})  # (token, features)
register_layout(nn.EmbeddingBag, {"weight": EMBEDDING})
register_layout(
    nn.MultiheadAttention,
    {
        "*proj_weight": neurons(0),  # in_proj (3*embed, embed), or q_, k_ and v_proj
        "in_proj_bias": BIAS,
        "bias_[kv]": neurons(0, 1),  # (1, 1, embed): a learned token, not a bias
    },
)
register_layout(nn.RNNBase, {"weight_*": neurons(0), "bias_*": BIAS})  # (gates*hidden, in)
register_layout(nn.RNNCellBase, {"weight_*": neurons(0), "bias_*": BIAS})
for _norm in (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm):
    register_layout(_norm, {"weight": GAIN, "bias": BIAS})
register_layout(nn.PReLU, {"weight": OTHER})  # a slope
