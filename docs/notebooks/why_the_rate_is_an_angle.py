# %% [markdown]
# # Why the rate is an angle
#
# Double the loss, and SGD steps twice as far. Double the weights, and the same step of Adam matters half as
# much. How far a neuron turns at a rate of 0.01 then depends on the loss, on the initial weights and on the
# width of the layer, and so does the rate that works. Nero's rate *is* how far a neuron turns.
#
# We measure it: one step of each optimizer, and the angle between each neuron before and after it.

# %%
import itertools

import matplotlib.pyplot as plt
import torch
from torch import nn

import nero
from nero.diagnostics import turning_angle

RATE = 0.01
OPTIMIZERS = {
    "SGD": lambda model: torch.optim.SGD(model.parameters(), lr=RATE),
    "Adam": lambda model: torch.optim.Adam(model.parameters(), lr=RATE),
    "Nero": lambda model: nero.Nero(model, lr=RATE, constraint="balanced"),
}
torch.manual_seed(0)
inputs = torch.randn(256, 64)
targets = inputs[:, :1] * inputs[:, 1:2]


def angles_of_a_step(optimizer_name, *, loss_scale=1.0, weight_scale=1.0):
    """Return, for each of four layers, the mean angle through which its neurons turn at the first step."""
    torch.manual_seed(1)
    widths = [64, 16, 256, 1024, 1]
    layers = [nn.Linear(fan_in, fan_out) for fan_in, fan_out in itertools.pairwise(widths)]
    with torch.no_grad():
        for layer in layers:
            layer.weight *= weight_scale
    model = nn.Sequential(*[part for layer in layers for part in (layer, nn.Tanh())][:-1])
    optimizer = OPTIMIZERS[optimizer_name](model)
    before = [layer.weight.detach().clone() for layer in layers]
    (loss_scale * nn.functional.mse_loss(model(inputs), targets)).backward()
    optimizer.step()
    return [
        turning_angle(start, layer.weight.detach(), fan_in_dims=(1,)).mean().item()
        for start, layer in zip(before, layers)
    ]


# %% [markdown]
# ## Scale the loss, scale the weights
#
# SGD steps along the gradient as it is, so its angle changes with both. Adam divides by the size of the
# gradient: the loss no longer matters, but the weights do. Nero divides by the norm of the gradient and
# multiplies by the norm of the neuron, and neither matters.

# %% alt="Angle per step against a factor on the loss, and on the weights. Nero is level at 0.01 in both; Adam in the first only; SGD in none."
factors = torch.logspace(-2, 2, 9).tolist()
figure, axes = plt.subplots(1, 2, figsize=(8, 3.2), sharey=True, layout="constrained")
for axis, what in zip(axes, ("loss_scale", "weight_scale")):
    for name in OPTIMIZERS:
        angles = [angles_of_a_step(name, **{what: factor})[1] for factor in factors]
        axis.loglog(factors, angles, "o-", label=name)
    axis.set(ylim=(1e-9, 3))
axes[0].set(xlabel="factor on the loss", ylabel="angle of a step (rad)")
axes[1].set(xlabel="factor on the weights")
axes[1].legend()
plt.show()

# %% [markdown]
# ## One rate for every layer
#
# The four layers of this network have fan-ins of 64, 16, 256 and 1,024. Adam moves each *weight* by 0.01, so
# a neuron with more of them turns further: here by 0.07 rad with a fan-in of 16, and by half a radian with
# 1,024. That is why a wider network wants a smaller rate. With Nero all layers turn alike.

# %% alt="Bars: the angle of a step in four layers, for three optimizers. Only Nero's are equal, at 0.01."
fan_ins = (64, 16, 256, 1024)
figure, axis = plt.subplots(figsize=(8, 3), layout="constrained")
for offset, name in enumerate(OPTIMIZERS):
    places = [layer + 0.27 * (offset - 1) for layer in range(4)]
    axis.bar(places, angles_of_a_step(name), width=0.25, label=name)
axis.set(yscale="log", ylabel="angle of a step (rad)")
axis.set_xticks(range(4), [f"layer {layer + 1}\nfan-in {fan_ins[layer]}" for layer in range(4)])
axis.axhline(RATE, color="grey", linewidth=0.8)
axis.legend()
plt.show()

# %%
angles = angles_of_a_step("Nero", loss_scale=100.0, weight_scale=100.0)
print("Nero, loss and weights times 100:", ", ".join(f"{angle:.4f}" for angle in angles), "rad")

assert all(0.5 * RATE < angle < 1.5 * RATE for angle in angles)

# %% [markdown]
# These are first steps. Later, a neuron whose gradient is longer than on average turns further than the
# rate, and one with a shorter gradient less far: [how far a neuron
# turns](../maths.md#how-far-a-neuron-turns). To watch the angles of a run, use a
# [`TurningMonitor`](../how-to/monitor.md).
#
# Next: [a hundred layers](a-hundred-layers.md).
