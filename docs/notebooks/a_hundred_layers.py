# %% [markdown]
# # A hundred layers
#
# Will a network of a hundred plain layers train: no shortcuts, no normalization? That depends on what
# reaches its last layer, and so on the weights it starts from. Nero sets the size of every neuron itself.
# Other optimizers take the weights as they are.

# %%
import itertools
import math

import matplotlib.pyplot as plt
import torch
from torch import nn

import nero

NUM_LAYERS, WIDTH = 100, 64
torch.manual_seed(0)
labels = torch.arange(128) % 4
inputs = 2 * torch.randn(4, 16)[labels] + torch.randn(128, 16)  # four clusters


class ScaledReLU(nn.Module):
    def forward(self, x):
        return math.sqrt(2) * x.relu()


def build_model():
    torch.manual_seed(0)
    widths = [16] + [WIDTH] * (NUM_LAYERS - 1)
    hidden = [nn.Linear(*sizes) for sizes in itertools.pairwise(widths)]
    return nn.Sequential(
        *(part for layer in hidden for part in (layer, ScaledReLU())), nn.Linear(WIDTH, 4)
    )


def he_(model):
    """Draw weights anew, of a size that keeps the size of what passes through (He et al., 2015)."""
    for layer in model[::2]:
        nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
        nn.init.zeros_(layer.bias)
    return model


# %% [markdown]
# ## How different do two inputs look to each layer?
#
# Here is the spread of each layer's outputs over the 128 inputs, before training. Torch's default weights
# shrink it by almost half per layer, and after forty layers it is lost in rounding: all inputs look the
# same. Balanced neurons, Nero's starting point, lose much less per layer, and He initialization next to
# nothing.


# %% alt="Spread of the outputs, layer by layer, on a log axis. Torch's defaults fall steeply to rounding error; balanced neurons fall slowly; He's stay near one."
def spread_by_layer(model):
    signal, spread = inputs, []
    with torch.no_grad():
        for part in model:
            signal = part(signal)
            if isinstance(part, ScaledReLU):
                spread.append(signal.std(dim=0).mean().item())
    return spread


figure, axis = plt.subplots(figsize=(8, 3), layout="constrained")
balanced = build_model()
nero.project_(balanced)
axis.semilogy(spread_by_layer(build_model()), label="torch's default weights")
axis.semilogy(spread_by_layer(balanced), label="balanced (Nero)")
axis.semilogy(spread_by_layer(he_(build_model())), label="He initialization")
axis.set(xlabel="layer", ylabel="spread over the inputs")
axis.legend()
plt.show()

# %% [markdown]
# ## Train them
#
# Nero gets the model with torch's default weights. Adam gets it too, and then a second one with He
# initialization. The rates fall linearly to zero. In so short a run, Nero's average of the gradient should
# forget quickly: `beta=0.99`.


# %%
def train(model, optimizer, num_steps=200):
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, num_steps)
    losses = []
    for _ in range(num_steps):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    accuracy = (model(inputs).argmax(dim=1) == labels).float().mean().item()
    return losses, accuracy


runs = {}
model = build_model()
runs["Adam, default weights"] = train(model, torch.optim.Adam(model.parameters(), lr=3e-4))
model = build_model()
runs["Nero, default weights"] = train(model, nero.Nero(model, lr=0.03, beta=0.99))
model = he_(build_model())
runs["Adam, He initialization"] = train(model, torch.optim.Adam(model.parameters(), lr=3e-4))
for name, (losses, accuracy) in runs.items():
    print(f"{name:24} loss {losses[-1]:.2f}, accuracy {accuracy:.0%} (guessing: 25%)")

# %% alt="Loss over 200 steps. Adam with default weights stays at 1.39; Nero falls in the second half; Adam with He initialization falls at once."
figure, axis = plt.subplots(figsize=(8, 3), layout="constrained")
for name, (losses, _) in runs.items():
    axis.plot(losses, label=name)
axis.set(xlabel="step", ylabel="loss", ylim=(0, 2))
axis.legend()
plt.show()

assert runs["Adam, default weights"][0][-1] > 1.3
assert runs["Nero, default weights"][0][-1] < 1.3

# %% [markdown]
# ## What it shows
#
# Nero trains a hundred layers from weights with which Adam learns nothing, because it sets their size itself.
# Its loss jumps about until the rate has fallen, and the rate was chosen: of 0.02, 0.03 and 0.04, only 0.03
# comes to 99% here, the others to 70% and 61%. With He initialization, Adam trains too, and faster: depth
# alone is no reason to choose Nero. The paper's experiment, a hundred layers on MNIST, ended the same way when
# [we ran it again](../../lab/report/report.md).
#
# To find out whether gradients reach the layers of a network of your own: [is my network
# training?](../how-to/is-it-training.md)
