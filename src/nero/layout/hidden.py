"""The weights meant for optimizers of hidden matrices, such as Muon."""

from collections.abc import Iterable

from torch import nn

from nero.layout.infer import infer_layouts


def hidden_matrices(
    model: nn.Module, *, outer_layers: Iterable[str] | None = None
) -> list[nn.Parameter]:
    """Return the trainable matrices of the hidden layers, in the model's order.

    Muon's authors recommend it for the 2-D weights of hidden layers, and AdamW for embeddings, the output
    layer, gains and biases. An orthogonal update moves every row of an embedding, even though a batch uses
    few of them; for the output layer AdamW has worked better in practice. Weights tied to an embedding and
    convolutions are left out too: ``torch.optim.Muon`` accepts only 2-D weights.

    Args:
        model: the model; it is not changed.
        outer_layers: names of modules to leave out, in addition to embeddings. The default is the output
            layer: the last registered layer with neurons. A first layer that reads numbers rather than
            tokens counts as hidden; name it here if it should not.

    Raises:
        AttributeError: if the model has no module with this name.

    Note:
        The output layer is inferred from registration order. A model may register a hidden layer last, for
        example because its forward pass uses the embedding as the output layer. That matrix is then left
        out by mistake; pass ``outer_layers=()`` to leave out only embeddings.

    Example:
        >>> from nero.layout import hidden_matrices
        >>> model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 32), nn.Linear(32, 8), nn.Linear(8, 50))
        >>> [tuple(weight.shape) for weight in hidden_matrices(model)]
        [(32, 8), (8, 32)]
    """
    layouts = infer_layouts(model)
    if outer_layers is None:
        outer = {named.param for named in layouts if named.is_output}
    else:
        outer = {p for name in outer_layers for p in model.get_submodule(name).parameters()}
    for module in model.modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag):
            outer.update(module.parameters(recurse=False))
    matrices = [
        named.param for named in layouts if named.layout.role == "neuron" and named.param.ndim == 2
    ]
    return [param for param in matrices if param.requires_grad and param not in outer]
