"""What the kernel's machine code predicts for a step on some GPUs, to hold a measurement against.

Made by ``python -m nero_tools.bench.gpu.roofline``: bytes, instructions and launches over published peak
rates.
"""

import re

PREDICTED_MODEL = "gpt2-124m"
PREDICTED_MS = {
    "A100": {"float32": 0.748, "bfloat16": 0.389},
    "H100": {"float32": 0.461, "bfloat16": 0.240},
    "H200": {"float32": 0.327, "bfloat16": 0.240},
    "B200": {"float32": 0.202, "bfloat16": 0.191},
    "RTX 4090": {"float32": 1.498, "bfloat16": 1.411},
    "RTX 5090": {"float32": 1.116, "bfloat16": 1.116},
    "L4": {"float32": 4.999, "bfloat16": 3.822},
    "MI250X": {"float32": 0.950, "bfloat16": 0.696},
    "MI300X": {"float32": 0.297, "bfloat16": 0.219},
    "RX 7900 XTX": {"float32": 1.573, "bfloat16": 0.954},
}


def predicted_ms(gpu: str, dtype: str) -> float | None:
    """Return the milliseconds of a step, or ``None`` for a GPU or a dtype without a prediction.

    >>> predicted_ms("NVIDIA GeForce RTX 4090", "float32")
    1.498
    >>> predicted_ms("NVIDIA L40S", "float32") is None
    True
    """
    for card, by_dtype in PREDICTED_MS.items():
        if re.search(rf"\b{card}\b", gpu):
            return by_dtype.get(dtype)
    return None
