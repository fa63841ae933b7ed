"""Algorithm 1 of the paper as a loop over neurons, in float64, sharing no code with the package.

Slow and plain on purpose. A parameter is a flat list of numbers; a neuron is the list of the indices
of its weights; nothing here knows of torch, dims or views. Without neurons, every element takes the
paper's bias update.
"""

import math
import operator
import sys
from dataclasses import dataclass, field

FREE = None


@dataclass
class Parameter:
    """Weights, the indices of each neuron (none: every element alone), and Algorithm 1's memory."""

    weight: list[float]
    neurons: list[list[int]]
    lr: float = 0.01
    beta: float = 0.999
    norm: str = "rms"
    momentum: float = 0.0
    direction: str = "gradient"
    num_matrices: int = 1
    bias_scale: float = 0.01
    centre: bool = True
    radius: float | str | None = 1.0
    gain_penalty: float = 0.0
    maximize: bool = False
    step: int = 0
    num_skipped: int = 0
    average_sq: list[float] = field(default_factory=list)
    is_behind: set[int] = field(default_factory=set)
    average_grad: list[float] = field(default_factory=list)
    radii: list[float | None] = field(default_factory=list)
    scale: float = 0.0

    def __post_init__(self) -> None:
        self.average_grad = [0.0] * len(self.weight)
        if not self.neurons:
            finite = [abs(b) for b in self.weight if math.isfinite(b)]
            mean_abs = math.fsum(finite) / len(finite) if finite else 0.0
            self.scale = mean_abs if mean_abs > 0 else self.bias_scale
            self.average_sq = [0.0] * len(self.weight)
            return
        self.average_sq = [0.0] * len(self.neurons)
        for neuron in self.neurons:
            row = [self.weight[i] for i in neuron]
            known = norm([w for w in row if math.isfinite(w)])
            radius = (known or self.bias_scale) if self.radius == "initial" else self.radius
            radius = math.sqrt(len(row)) if self.radius == "sqrt_dim" else radius
            self.radii.append(radius)  # type: ignore[arg-type]
            if all(map(math.isfinite, row)) and not has_no_direction(row, self.centre):
                self._write(neuron, self._project(row, radius))  # type: ignore[arg-type]

    def update(self, grad: list[float], lr: float | None = None) -> None:
        """Run one step of Algorithm 1."""
        lr = self.lr if lr is None else lr
        if lr == 0:
            return
        self.step += 1
        grad = [-g for g in grad] if self.maximize else list(grad)
        grad = [g + self.gain_penalty * (w - 1) for g, w in zip(grad, self.weight, strict=True)]
        if self.direction == "polar":
            self._update_matrices(grad, lr)
        elif self.neurons:
            for which, neuron in enumerate(self.neurons):
                self._update_neuron(which, neuron, [grad[i] for i in neuron], lr)
        else:
            for i, g in enumerate(grad):
                self._update_element(i, g, lr)

    def _update_neuron(self, which: int, neuron: list[int], g: list[float], lr: float) -> None:
        if not all(math.isfinite(x) for x in (*g, *(self.weight[i] for i in neuron))):
            self._skip(which)
            return
        self._turn(
            which, neuron, [self._direction(i, x) for i, x in zip(neuron, g, strict=True)], lr
        )

    def _update_matrices(self, grad: list[float], lr: float) -> None:
        # Along the polar factor of a matrix, whose rows are neurons: not in the paper
        rows = {}
        for which, neuron in enumerate(self.neurons):
            if all(math.isfinite(grad[i]) for i in neuron):
                rows[which] = [self._direction(i, grad[i]) for i in neuron]
            else:
                self._skip(which)
        num_rows = len(self.neurons) // self.num_matrices
        for first in range(0, len(self.neurons), num_rows):
            these = [which for which in range(first, first + num_rows) if which in rows]
            turned = newton_schulz([rows[which] for which in these])
            for which, row in zip(these, turned, strict=True):
                self._turn(which, self.neurons[which], row, lr)

    def _turn(self, which: int, neuron: list[int], g: list[float], lr: float) -> None:
        w = [self.weight[i] for i in neuron]
        g_bar = self._average(which, math.fsum(x * x for x in g))
        if not any(g):
            return
        radius = self.radii[which]
        if has_no_direction(w, self.centre and radius is not FREE):
            w, radius = [-x for x in g], radius if radius is not FREE else self.bias_scale
        else:
            # w <- w - eta * ||w|| / g_bar * g
            size = lr * norm(w) / g_bar
            w = [x - size * y for x, y in zip(w, g, strict=True)]
        if not has_no_direction(w, self.centre and radius is not FREE):
            self._write(neuron, self._project(w, radius))

    def _update_element(self, i: int, g: float, lr: float) -> None:
        if not math.isfinite(g):
            self._skip(i)
            return
        g = self._direction(i, g)
        g_bar = self._average(i, g * g)
        if g != 0:
            # b <- b - eta * sigma_b / g_bar * g
            self.weight[i] -= lr * self.scale / g_bar * g

    def _direction(self, i: int, g: float) -> float:
        # m <- mu*m + (1-mu)*g, and then along mu*m + (1-mu)*g: not in the paper
        mu = self.momentum
        self.average_grad[i] = mu * self.average_grad[i] + (1 - mu) * g
        if abs(self.average_grad[i]) < sys.float_info.min:  # a denormal would never become zero
            self.average_grad[i] = 0.0
        return mu * self.average_grad[i] + (1 - mu) * g

    def _average(self, which: int, grad_sq: float) -> float:
        if self.norm == "peak":
            # u <- max(beta * u, ||g||): not in the paper
            self.average_sq[which] = max(self.beta**2 * self.average_sq[which], grad_sq)
            return math.sqrt(self.average_sq[which])
        # g_bar^2 <- beta * g_bar^2 + (1 - beta) * ||g||^2, corrected by 1 - beta^t
        new = self.beta * self.average_sq[which] + (1 - self.beta) * grad_sq
        if which in self.is_behind and grad_sq:
            # No more than eta, until a gradient is no longer than the average: not in the paper
            if new < (1 - self.beta**self.step) * grad_sq:
                new = (1 - self.beta**self.step) * grad_sq
            else:
                self.is_behind.remove(which)
        self.average_sq[which] = new
        return math.sqrt(new / (1 - self.beta**self.step))

    def _skip(self, which: int) -> None:
        # As if the gradient had been of average length; a peak stays: not in the paper
        self.num_skipped += 1
        self.is_behind.add(which)
        if self.step > 1 and self.norm == "rms":
            average_sq = self.average_sq[which] / (1 - self.beta ** (self.step - 1))
            self.average_sq[which] = average_sq * (1 - self.beta**self.step)

    def _project(self, w: list[float], radius: float | None) -> list[float]:
        if self.centre:
            mean = math.fsum(w) / len(w)
            w = [x - mean for x in w]
        if radius is not FREE:
            size = norm(w)
            w = [radius * x / size for x in w]
        return w

    def _write(self, neuron: list[int], w: list[float]) -> None:
        for i, x in zip(neuron, w, strict=True):
            self.weight[i] = x


def newton_schulz(x: list[list[float]]) -> list[list[float]]:
    """Five steps of x <- 3.4445 x - 4.7750 (x x^T) x + 2.0315 (x x^T)^2 x, from a Frobenius norm of one."""
    size = norm([norm(row) for row in x])
    x = [[value / size for value in row] for row in x] if size else x
    for _ in range(5):
        gram = [[math.fsum(map(operator.mul, a, b)) for b in x] for a in x]
        once = product(gram, x)
        twice = product(gram, once)
        x = [
            [3.4445 * a - 4.7750 * b + 2.0315 * c for a, b, c in zip(*rows, strict=True)]
            for rows in zip(x, once, twice, strict=True)
        ]
    return x


def product(a: list[list[float]], b: list[list[float]]) -> list[list[float]]:
    columns = list(zip(*b, strict=True))
    return [[math.fsum(map(operator.mul, row, column)) for column in columns] for row in a]


def norm(row: list[float]) -> float:
    return math.sqrt(math.fsum(x * x for x in row))


def has_no_direction(row: list[float], centre: bool) -> bool:
    """A zero row, or where the mean is removed a constant one."""
    return norm(row) == 0 or (centre and max(row) == min(row))
