r"""How much of a sphere lies within an angle of one of its points.

Rotating a neuron by up to an angle alpha moves it within a cap of its sphere. Balanced neurons of
fan-in d live on a sphere of d - 2 dims (section 6.2), so a cap is a tiny part of the whole: its
measure soon leaves the range of float64, and everything here is a logarithm.
"""

import math

from nero.core.arguments import real_number, whole_number


def log_cap_measure(angle_rad: float, *, sphere_dim: int) -> float:
    r"""Compute the logarithm of the share of a sphere that lies within an angle of a point.

    With p for ``sphere_dim``, and up to a right angle,

    $$
    \ln \mathbb{P}[\mathrm{cap}_p(\alpha)]
      = \ln \tfrac{1}{2} I_{\sin^2 \alpha} \bigl( \tfrac{p}{2}, \tfrac{1}{2} \bigr)
    $$

    where I is the regularized incomplete beta function. Beyond a right angle, the cap is the complement of
    the opposite one.

    Args:
        angle_rad: the angular radius alpha, from 0 to pi.
        sphere_dim: dims of the sphere itself: 1 for a circle, 2 for a ball's surface. The balanced
            neurons of fan-in d live on a sphere of d - 2 dims.

    Note:
        A sphere of 0 dims is two points: a cap holds one of them until it holds both.

    Example:
        >>> import math
        >>> from nero_tools.theory import log_cap_measure
        >>> round(math.exp(log_cap_measure(math.pi / 3, sphere_dim=2)), 6)  # (1 - cos(alpha)) / 2
        0.25
        >>> round(log_cap_measure(0.1, sphere_dim=766), 3)  # a neuron of fan-in 768
        -1769.292
    """
    check_cap(angle_rad, sphere_dim)
    if sphere_dim == 0:
        return 0.0 if angle_rad == math.pi else math.log(0.5)
    if angle_rad == 0:
        return -math.inf
    if angle_rad > math.pi / 2:
        opposite = log_cap_measure(math.pi - angle_rad, sphere_dim=sphere_dim)
        return math.log1p(-math.exp(opposite))
    return math.log(0.5) + _log_beta_half(sphere_dim / 2, angle_rad)


def log_cap_lower_bound(angle_rad: float, *, sphere_dim: int) -> float:
    r"""Compute the logarithm of the paper's lower bound of a cap's share (Equation 5).

    It is Ball's Lemma 2.3 (1997). Within an angle of alpha of the centre, no point of a unit sphere
    is further from it than $r = 2 \sin \frac{\alpha}{2}$, and the lemma is about half of r:

    $$
    \mathbb{P}[\mathrm{cap}_p(\alpha)] \geq \tfrac{1}{2} \sin^p \tfrac{\alpha}{2}
    $$

    Small caps are larger than this by a factor of nearly two for every dim: see
    [`log_cap_measure`][nero_tools.theory.log_cap_measure], which takes the same arguments.

    Example:
        >>> from nero_tools.theory import log_cap_lower_bound
        >>> round(log_cap_lower_bound(0.1, sphere_dim=766), 3)
        -2295.743
    """
    check_cap(angle_rad, sphere_dim)
    if sphere_dim == 0:
        return math.log(0.5)
    if angle_rad == 0:
        return -math.inf
    return math.log(0.5) + sphere_dim * _log_sin(angle_rad / 2)


def check_cap(angle_rad: float, sphere_dim: int) -> None:
    """Raise if there is no such cap."""
    if not 0 <= real_number("angle_rad", angle_rad) <= math.pi:
        raise ValueError(f"angle_rad must be from 0 to pi, but is {angle_rad!r}")
    whole_number("sphere_dim", sphere_dim, smallest=0)


def _log_beta_half(a: float, angle_rad: float) -> float:
    """Compute ``ln I(sin^2 angle; a, 1/2)``, for angles up to pi/2.

    The continued fraction of I is fast on one side of the mean of the beta distribution, and that of
    ``1 - I`` on the other.
    """
    x, y = math.sin(angle_rad) ** 2, math.cos(angle_rad) ** 2  # x + y = 1, each to its last digit
    # x^a * (1-x)^(1/2) / B(a, 1/2), with B(a, 1/2) = sqrt(pi) * Gamma(a) / Gamma(a + 1/2)
    log_front = 2 * a * _log_sin(angle_rad) + 0.5 * math.log(y / math.pi) + _log_gamma_step(a)
    if x < (a + 1) / (a + 2.5):
        return log_front + math.log(_beta_fraction(a, 0.5, x, y))
    return math.log1p(-math.exp(log_front) * _beta_fraction(0.5, a, y, x))


def _beta_fraction(a: float, b: float, x: float, y: float) -> float:
    """Compute ``I(x; a, b) * B(a, b) / (x^a * y^b)`` as a continued fraction, with ``y`` for 1 - x.

    It is the even part of DLMF 8.17.22, as Didonato and Morris (1992) write it: where x is near
    one, terms cancel in the fraction itself, and in its even part ``y`` says what is left of them.
    Lentz's method evaluates it from the front, so the number of terms need not be guessed; it takes
    about sqrt(a) of them at most.
    """
    tiny = 1e-300  # for a denominator that is zero by accident
    centre = a - (a + b) * x if x < y else (a + b) * y - b  # the same, by what is small
    c = a * (centre + 1) / (a + 1)
    d, fraction = 0.0, 1 / c
    for n in range(1, 100_000):
        middle = a + 2 * n - 1
        above = n * (b - n) * x * x * ((a + n - 1) / middle) * ((a + b + n - 1) / middle)
        below = n + n * (b - n) * x / middle
        below += (a + n) * (centre + 1 + n * (1 + y)) / (a + 2 * n + 1)
        d = 1 / (below + above * d or tiny)
        c = below + above / c or tiny
        fraction /= c * d
        if abs(c * d - 1) < 2e-16:
            return fraction
    raise ArithmeticError(f"the continued fraction of I({x}; {a}, {b}) did not converge")


def _log_gamma_step(a: float) -> float:
    """Compute ``ln(Gamma(a + 1/2) / Gamma(a))``."""
    if a < 20:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    # Both logarithms are near a*ln(a), and their difference is small: a series keeps its digits.
    u = 1 / a**2
    return 0.5 * math.log(a) + (-1 / 8 + u * (1 / 192 + u * (-1 / 640 + u * 17 / 14336))) / a


def _log_sin(angle_rad: float) -> float:
    """Compute ``ln(sin(angle))``, to the last digits near pi/2 too."""
    cosine = math.cos(angle_rad)
    if cosine**2 < 0.5:
        return 0.5 * math.log1p(-(cosine**2))
    return math.log(math.sin(angle_rad))
