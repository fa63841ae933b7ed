"""Who is compared with whom: the optimisers of each figure, table and claim."""

RIVALS = ("sgd", "adam", "lamb")
"""Those that the paper compares Nero with, all over section 5.5."""

OF_PAPER = ("nero", *RIVALS)

OTHER_LAMBS = ("lamb-clamped", "lamb-momentum")
"""LAMB as the authors' code has it, and as they found it to learn Pong: drawn where run, not judged."""

CONSTRAINTS = ("nero-none", "nero-mean", "nero-norm", "nero")
"""Section 5.1: Nero with one constraint, the other, none and both."""

RELATIVE_FREE = ("madam", "nero-none", "lamb")
"""Section 5.2: updates relative to the synapse, the neuron and the layer, without constraints."""

RELATIVE_BALANCED = ("madam-balanced", "nero", "lamb-balanced")
"""The same with constraints."""

FREE_OF = dict(zip(RELATIVE_BALANCED, RELATIVE_FREE, strict=True))
"""What each optimiser with constraints is without them."""

REPARAMETERISED = {"adam-momentum": "Adam (beta1 = 0.9)", "adam": "Adam (beta1 = 0)"}
"""Section 5.3 says "Adam" and not which: the authors' code has torch's default beta1 = 0.9."""

MODERN_RIVALS = ("adamw", "muon", "schedule-free", "prodigy", "sgd-momentum")
"""What one would use today."""
