"""The protocol: the runs that the evidence consists of, their order, and the command that makes them."""
