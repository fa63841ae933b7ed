"""Real training: Nero at its defaults learns MNIST, and section 5.3 of the paper holds."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from nero import Nero
from training.mnist import load, requires_mnist

pytestmark = requires_mnist
BATCH_SIZE = 250


def batches(images, labels, num_epochs=1):
    for _ in range(num_epochs):
        order = torch.randperm(len(images))
        for chosen in order.split(BATCH_SIZE):
            yield images[chosen], labels[chosen]


def test_an_mlp_reaches_97_percent_within_3_epochs_at_the_defaults(capsys):
    model = mlp(nn.Linear, sigma=1.0, num_layers=3)
    optimizer = Nero(model)
    for x, y in batches(*load("train"), num_epochs=3):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    images, labels = load("t10k")
    with torch.no_grad():
        accuracy = (model(images).argmax(dim=1) == labels).float().mean().item()
    with capsys.disabled():
        print(f"\nMNIST, 3 epochs, Nero(model): test accuracy {accuracy:.2%}")
    assert accuracy >= 0.97


class ScaledReLU(nn.Module):
    """The paper's nonlinearity, sqrt(2) * max(0, x)."""

    def forward(self, x):
        return math.sqrt(2) * F.relu(x)


class Reparameterised(nn.Linear):
    """A linear layer that normalizes its weight in the forward pass (Equation 3)."""

    def forward(self, x):
        weight = self.weight - self.weight.mean(dim=1, keepdim=True)
        return F.linear(x, weight / weight.norm(dim=1, keepdim=True), self.bias)


def mlp(layer, sigma, num_layers=5):
    """The paper's 784-wide MLP, with weights drawn from N(0, sigma^2)."""
    torch.manual_seed(0)
    layers = []
    for _ in range(num_layers - 1):
        layers += [layer(784, 784, bias=False), ScaledReLU()]
    model = nn.Sequential(*layers, layer(784, 10, bias=False))
    for param in model.parameters():
        nn.init.normal_(param, std=sigma)
    return model


def train_accuracy(model, optimizer, num_steps=60):
    """Mean accuracy on the batches of the second half of training."""
    torch.manual_seed(1)
    accuracies = []
    for (x, y), _ in zip(batches(*load("train")), range(num_steps), strict=False):
        optimizer.zero_grad()
        output = model(x)
        F.cross_entropy(output, y).backward()
        optimizer.step()
        accuracies.append((output.argmax(dim=1) == y).float().mean().item())
    return sum(accuracies[num_steps // 2 :]) / (num_steps - num_steps // 2)


def test_adam_is_sensitive_to_sigma_and_nero_is_not(capsys):
    """Section 5.3: reparameterised, Adam's rate depends on the scale of weights; Nero has no such scale."""
    adam, nero = {}, {}
    for sigma in (1.0, 100.0):
        model = mlp(Reparameterised, sigma)
        adam[sigma] = train_accuracy(model, torch.optim.Adam(model.parameters(), lr=0.01))
        model = mlp(nn.Linear, sigma)
        nero[sigma] = train_accuracy(model, Nero(model))
    with capsys.disabled():
        print(f"\naccuracy by sigma, steps 30 to 60: Adam, reparameterised {adam}; Nero {nero}")
    assert adam[1.0] - adam[100.0] > 0.1
    # Nero projects what it is given: the same network, but for the rounding of the projection.
    assert abs(nero[1.0] - nero[100.0]) < 0.01
    assert min(nero.values()) > max(adam[100.0], 0.8)


def test_nero_starts_from_the_same_network_whatever_sigma():
    """By construction, not by tuning: after projection the scale is gone."""
    models = [mlp(nn.Linear, sigma, num_layers=2) for sigma in (1.0, 100.0)]
    for model in models:
        Nero(model)
    for p, q in zip(*(model.parameters() for model in models), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-8)
