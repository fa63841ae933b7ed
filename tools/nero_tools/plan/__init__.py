"""Memory and communication of an optimizer step at any scale, simulated: ``nero plan``.

A model on the meta device is cut among the ranks of a process group that sends nothing, and every optimizer
takes a real step there. All figures are counted from what that step does; none comes from a formula.
"""
