"""What the kernel's machine code predicts for a step on some GPUs, to hold a measurement against.

Made by ``python -m nero_tools.bench.gpu.roofline``: bytes, instructions and launches over published peak
rates.
"""

import re

PREDICTED_MODEL = "gpt2-124m"
PREDICTED_MS = {
    "A100": {"float32": 0.743, "bfloat16": 0.377},
    "H100": {"float32": 0.456, "bfloat16": 0.233},
    "H200": {"float32": 0.322, "bfloat16": 0.229},
    "B200": {"float32": 0.197, "bfloat16": 0.181},
    "RTX 4090": {"float32": 1.493, "bfloat16": 1.339},
    "RTX 5090": {"float32": 1.057, "bfloat16": 1.057},
    "L4": {"float32": 4.994, "bfloat16": 3.632},
    "MI250X": {"float32": 1.039, "bfloat16": 0.675},
    "MI300X": {"float32": 0.292, "bfloat16": 0.210},
    "RX 7900 XTX": {"float32": 1.568, "bfloat16": 0.903},
}


def predicted_ms(gpu: str, dtype: str) -> float | None:
    """Return the milliseconds of a step, or ``None`` for a GPU or a dtype without a prediction.

    >>> predicted_ms("NVIDIA GeForce RTX 4090", "float32")
    1.493
    >>> predicted_ms("NVIDIA L40S", "float32") is None
    True
    """
    for card, by_dtype in PREDICTED_MS.items():
        if re.search(rf"\b{card}\b", gpu):
            return by_dtype.get(dtype)
    return None
