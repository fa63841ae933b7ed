# %% [markdown]
# # First steps
#
# A network learns to tell two spirals apart. You will see how Nero is built, what it keeps of each neuron,
# and what it learns in a few seconds on a CPU.

# %%
import math

import matplotlib.pyplot as plt
import torch
from torch import nn

import nero

torch.manual_seed(0)
turn = torch.rand(1000) * 3 * math.pi
spiral = torch.arange(1000) % 2
direction = turn + math.pi * spiral
points = torch.stack([turn * direction.cos(), turn * direction.sin()], dim=1) / 5
points += 0.05 * torch.randn(1000, 2)

# %% [markdown]
# ## The network and the optimizer
#
# Two coordinates are too few for a balanced neuron: mean zero and norm one would leave it only two
# directions. So the points first become 32 fixed waves, and the network sees those.
#
# Pass the model, not its parameters: Nero finds out from the modules which weights belong to one neuron.

# %%
frequencies = torch.randn(2, 16)


def waves(points):
    return torch.cat([(points @ frequencies).sin(), (points @ frequencies).cos()], dim=1)


model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
optimizer = nero.Nero(model, lr=0.03)
print(nero.describe(model))

# %% [markdown]
# Each row of the first matrix is a neuron with a fan-in of 32. It has mean zero and norm one from now on,
# and Nero keeps a single number for it. Biases have no fan-in and no constraint.
#
# ## Train
#
# The loop is the one you know. The rate is an angle: at 0.03 each neuron turns by about 0.03 radians, or
# two degrees, per step. It should fall towards zero; any scheduler of torch will do.

# %%
num_steps = 300
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=num_steps)
losses = []
for _ in range(num_steps):
    loss = nn.functional.cross_entropy(model(waves(points)), spiral)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())

accuracy = (model(waves(points)).argmax(dim=1) == spiral).float().mean().item()
print(f"loss {losses[0]:.2f} before, {losses[-1]:.2f} after; accuracy {accuracy:.0%}")

# %% alt="Left: the loss falls from about 0.7 to near zero in 300 steps. Right: the plane in two colours, along the spirals."
grid = torch.linspace(-2.1, 2.1, 120)
plane = torch.cartesian_prod(grid, grid)
with torch.no_grad():
    probability = model(waves(plane)).softmax(dim=1)[:, 1].view(120, 120).T

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
left.plot(losses)
left.set(xlabel="step", ylabel="loss", ylim=(0, None))
right.contourf(grid, grid, probability, levels=20, cmap="RdBu", alpha=0.7)
right.scatter(*points.T, c=spiral, cmap="RdBu", s=4)
right.set(xticks=[], yticks=[], aspect="equal", title="predicted class")
plt.show()

# %% [markdown]
# ## What stayed the same
#
# Nero takes every neuron back to its sphere after each step, so the weights neither grow nor shrink while
# they train. That is why there is no weight decay to set.

# %%
weights = model[0].weight.detach()
print(f"largest mean {weights.mean(dim=1).abs().max():.0e}")
print(f"norms {weights.norm(dim=1).min():.6f} to {weights.norm(dim=1).max():.6f}")

assert accuracy > 0.95

# %% [markdown]
# Next: [why the rate is an angle](why-the-rate-is-an-angle.md), or the [tutorial](../tutorial.md) with
# checkpoints.
