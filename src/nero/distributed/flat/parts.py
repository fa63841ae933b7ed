"""The updates of a range: made once, and again only if its tensors or options change."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from nero.core.neurons import Neurons
from nero.core.spec import Hyper
from nero.core.update import Places, Update
from nero.distributed.flat.boxes import Box, Form, Piece, Shape, boxes_of, form_of
from nero.distributed.flat.plan import Plan


class Part(NamedTuple):
    """A box as an update; `with_grad` adds the step's gradient."""

    update: Update
    first: int
    """Its first element in the buffer."""
    block: int | None = None
    """The index of its block among those that ranks share."""
    kept: tuple[slice, ...] = ()
    """The neurons of that block that it overlaps."""
    counts: bool = True
    """Whether it has its neurons' first weights; only then does this rank count skipped neurons."""

    def with_grad(self, grad: Tensor, lr: float | Tensor) -> Update:
        """Return the update of this step."""
        old = self.update
        part = grad[self.first : self.first + old.weight.numel()].view(old.weight.shape)
        return old._replace(grad=part, lr=lr)


class Block(NamedTuple):
    """Neurons that this rank shares with others."""

    slot: int
    """The slot of its first neuron."""
    number: int
    """Its number among the shared blocks of all ranks."""
    shape: Shape
    """The shape of one number per neuron."""
    state: dict[str, Tensor]
    """Its part of the state per neuron."""
    step: Tensor
    hyper: Hyper
    fan_in: int


class Parts(NamedTuple):
    """All updates of a range: whole neurons, parts of neurons, and the blocks that these belong to."""

    whole: list[Part]
    cut: list[Part]
    blocks: list[Block]


class Place(NamedTuple):
    """The position of a piece's state within its range's state."""

    form: Form
    boxes: list[Box]
    first_box: int
    first_block: int
    num_blocks: int
    first_neuron: int

    @property
    def num_neurons(self) -> int:
        """How many neurons this rank keeps state for."""
        return self.num_blocks * self.form.num_kept

    def slot_of(self, block: int) -> int:
        """Return where the state of a block begins."""
        return self.first_neuron + (block - self.first_block) * self.form.num_kept


def places_of(pieces: Sequence[Piece]) -> list[Place]:
    """Lay out the state of a range, one piece after the other."""
    places = []
    box = neuron = 0
    for piece in pieces:
        form = form_of(piece.shape, piece.neurons)
        boxes = boxes_of(form, piece.start, piece.stop, piece.offset)
        first = piece.start // form.block
        num_blocks = -(-piece.stop // form.block) - first if boxes else 0
        places.append(Place(form, boxes, box, first, num_blocks, neuron))
        box += len(boxes)
        neuron += num_blocks * form.num_kept
    return places


def parts_of(
    flat: Tensor,
    state: Mapping[str, Tensor],
    pieces: Sequence[Piece],
    places: Sequence[Place],
    hypers: Sequence[Hyper],
    plan: Plan,
    backend: str,
) -> Parts:
    """View a range's boxes, and their state, as updates.

    Args:
        flat: the range.
        state: its state.
        pieces: the parameters in it.
        places: where the state of each lies.
        hypers: the options that apply to the neurons of each.
        plan: the slots of shared blocks.
        backend: the backend for whole neurons.
    """
    parts = Parts([], [], [])
    for index, (piece, place, hyper) in enumerate(zip(pieces, places, hypers, strict=True)):
        for number, box in enumerate(place.boxes, start=place.first_box):
            scalars = {key: state[key][number] for key in ("step", "num_skipped")}
            if "scale" in state:
                scalars["scale"] = state["scale"][index]
            elements = slice(box.first, box.first + box.numel)
            shape, dims = box.view(place.form)
            kept_shape = tuple(1 if d in dims else n for d, n in enumerate(shape))
            mine: dict[str, Tensor] = dict(scalars)
            if "exp_avg" in state:
                mine["exp_avg"] = state["exp_avg"][elements].view(shape)
            neurons = Neurons(piece.neurons.role, None, 1, dims, piece.neurons.fan_in, kept_shape)
            start = piece.start + box.first - piece.offset
            weight, noise = flat[elements].view(shape), _noise(start, shape)
            update = Update(
                *(weight, weight, mine, neurons, hyper, 0.0, piece.position, backend),
                places=noise if hyper.draws_noise else None,
            )
            block = box.block(place.form)
            slot = place.slot_of(block)
            if box.is_whole(place.form):
                num = neurons.num_neurons
                mine |= _per_neuron(state, slice(slot, slot + num), kept_shape)
                parts.whole.append(Part(update, box.first))
                continue
            shared = plan.slots[piece.position, block]
            if not parts.blocks or parts.blocks[-1].slot != shared[0]:
                num, shape_of_block = place.form.num_kept, place.form.kept
                per_neuron = _per_neuron(state, slice(slot, slot + num), shape_of_block)
                parts.blocks.append(
                    Block(
                        *(*shared, shape_of_block, per_neuron, mine["step"], hyper),
                        piece.neurons.fan_in,
                    )
                )
            kept = box.kept(place.form)
            mine |= {
                key: tensor[kept].view(kept_shape) if kept else tensor.view(kept_shape)
                for key, tensor in parts.blocks[-1].state.items()
            }
            counts = not any(box.origin[d] for d in place.form.fan_in_dims)
            parts.cut.append(Part(update, box.first, len(parts.blocks) - 1, kept, counts))
    return parts


def _per_neuron(state: Mapping[str, Tensor], part: slice, shape: Shape) -> dict[str, Tensor]:
    keys = [key for key in ("exp_avg_norm", "radius") if key in state]
    return {key: state[key][part].view(shape) for key in keys}


def _noise(start: int, shape: Shape) -> Places:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return Places(start, tuple(strides))


def with_options(hyper: Any, own: Mapping[str, Any], neurons: Neurons) -> Hyper:
    """Return the options of a piece: its group's, except those that it has of its own."""
    options: Hyper = hyper._replace(**own) if own else hyper
    return options.for_neurons(neurons)
