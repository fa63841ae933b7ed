"""A range of a flat buffer, as this rank holds it."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nero.backends import Backend, new_backends
from nero.core.held import Held
from nero.core.neurons import Neurons
from nero.core.spec import Hyper, StateSpec
from nero.core.sphere import Sphere
from nero.core.update import Update
from nero.distributed.collectives import all_reduce_over
from nero.distributed.flat.boxes import Piece
from nero.distributed.flat.parts import Parts, parts_of, places_of, with_options
from nero.distributed.flat.plan import Plan

State = Mapping[str, Tensor]


class Member(NamedTuple):
    """A piece, with the state and options carried over from the whole parameter."""

    piece: Piece
    state: State
    """The state of the whole parameter."""
    own: Mapping[str, Any]
    """Options that override its group's."""


class FlatRange(Held):
    """A range of a flat buffer, with which an engine replaced whole parameters.

    Its state has one entry per piece (``scale``), per box (``step``, ``num_skipped``), per neuron that this
    rank has a part of (``exp_avg_norm``, ``radius``) and per element (``exp_avg``).
    """

    is_range = True

    def __init__(
        self,
        param: Tensor,
        members: Sequence[Member],
        plan: Plan,
        *,
        is_new: bool = False,
        is_spread: bool = False,
    ) -> None:
        self.is_spread = is_spread
        """Whether checkpoints have its state per element, as FSDP1 gathers it."""
        self.spreads_radius = False
        self.is_new = is_new
        """Whether no optimizer has seen the whole parameters, so they still need projecting."""
        self.pieces = [member.piece for member in members]
        self.own = [member.own for member in members]
        self.plan = plan
        self.state_places = places_of(self.pieces)
        self.carried: list[State] = [member.state for member in members]
        self.backends: tuple[dict[str, Backend], dict[str, Backend]] = (
            new_backends(),
            new_backends(),
        )
        """For whole neurons, and for parts of neurons, of all ranges that step together with this one."""
        self.calls: dict[Any, Any] = {}
        """The plans cached by `step_` for calls that begin with this range."""
        super().__init__(param, self._as_one())
        # Others may have a gradient if this rank has none.
        self.neuron_mesh_dims = (plan.group,)
        self._parts: tuple[Any, Parts] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as an empty object, because engines pickle the tensors that this is attached to."""
        return OrderedDict, ()

    def _as_one(self) -> Neurons:
        """Return placeholder neurons for all pieces, for code that needs a state shape."""
        num = sum(place.num_neurons for place in self.state_places)
        is_elementwise = all(piece.neurons.is_elementwise for piece in self.pieces)
        role = self.pieces[0].neurons.role
        return Neurons(role, None, 1, () if is_elementwise else (0,), 1, (num,))

    @property
    def all_neurons(self) -> tuple[Neurons, ...]:
        """The neurons of all parameters in the buffer, on any rank."""
        return tuple(piece.neurons for piece in self.pieces)

    def new_state_tensor(self, key: str, spec: StateSpec, hyper: Any) -> Tensor:
        """Return a state tensor initialized with the state from before flattening."""
        param = self.param.detach()
        self.spreads_radius = hyper.constraint.radius == "initial"
        is_known = any(key in old for old in self.carried)
        if self.is_new and spec.initial is not None and not is_known:
            self._carry(key, spec, hyper)
        options: dict[str, Any] = {
            "dtype": spec.dtype_for(param.dtype, hyper),
            "device": param.device,
        }
        if spec.shape == "per element":
            new = torch.zeros_like(param, dtype=options["dtype"])
        elif key == "scale":
            new = torch.zeros(len(self.pieces), **options)
        elif spec.shape == "scalar":
            new = torch.zeros(sum(len(place.boxes) for place in self.state_places), **options)
        else:
            new = torch.zeros(self.neurons.state_shape, **options)
        for index, (piece, place, old) in enumerate(
            zip(self.pieces, self.state_places, self.carried, strict=True)
        ):
            if key not in old:
                continue
            if spec.shape == "per element":
                held = slice(piece.offset, piece.offset + piece.stop - piece.start)
                new[held] = old[key].reshape(-1)[piece.start : piece.stop]
            elif key == "scale":
                new[index] = old[key]
            elif spec.shape == "scalar":
                new[place.first_box : place.first_box + len(place.boxes)] = old[key]
            else:
                first, num = place.first_block * place.form.num_kept, place.num_neurons
                held = slice(place.first_neuron, place.first_neuron + num)
                new[held] = old[key].reshape(-1)[first : first + num]
        return new

    def _carry(self, key: str, spec: StateSpec, hyper: Any) -> None:
        """Compute a state tensor from one gathered parameter at a time; all ranks must call this."""
        assert spec.initial is not None
        for index, piece in enumerate(self.pieces):
            own = with_options(hyper, self.own[index], piece.neurons)
            if spec.exists(piece.neurons, own):
                held = Held(self._whole(index), piece.neurons)
                value = spec.initial(held.param, own, held.neuron_norms)
                value = value.to(spec.dtype_for(self.param.dtype, own))
                self.carried[index] = {**self.carried[index], key: value}

    def _whole(self, index: int) -> Tensor:
        """Gather a parameter on every rank; all of them call this."""
        piece, flat = self.pieces[index], self.param.detach()
        whole = flat.new_zeros(piece.numel)
        whole[piece.start : piece.stop] = flat[piece.offset :][: piece.stop - piece.start]
        return all_reduce_over(whole, self.plan.group).view(piece.shape)

    def zeros_per_neuron(self, dtype: torch.dtype) -> Tensor:
        """Return one zero per neuron that this rank has a part of."""
        return torch.zeros(self.neurons.state_shape, dtype=dtype, device=self.param.device)

    def project_(self, constraint: Sphere, radius: Tensor | None = None) -> None:
        """Project every neuron in place, unless that was done before parameters were flattened.

        Gathers one parameter after the other; all ranks call this.
        """
        if not self.is_new:
            return
        self.is_new = False
        flat = self.param.detach()
        for index, piece in enumerate(self.pieces):
            sphere = self.own[index].get("constraint", constraint).for_fan_in(piece.neurons.fan_in)
            if piece.neurons.is_elementwise or sphere.is_free:
                continue
            held = Held(self._whole(index), piece.neurons)
            norms = self.carried[index].get("radius")
            held.project_(sphere, None if norms is None else piece.neurons.view(norms))
            own = held.param.reshape(-1)[piece.start : piece.stop]
            flat[piece.offset :][: piece.stop - piece.start] = own

    def parts(self, update: Update) -> Parts:
        """Return the updates of all boxes, without gradients."""
        # The state is replaced when a checkpoint is loaded, and engines may move what they own.
        key = (
            *(update.hyper, update.backend, update.weight.data_ptr(), tuple(update.state)),
            *map(Tensor.data_ptr, update.state.values()),
        )
        if self._parts is None or self._parts[0] != key:
            hypers: list[Hyper] = [
                with_options(update.hyper, own, piece.neurons)
                for piece, own in zip(self.pieces, self.own, strict=True)
            ]
            for piece, hyper in zip(self.pieces, hypers, strict=True):
                if hyper.direction != "gradient":
                    raise RuntimeError(
                        f"{piece.name} has direction={hyper.direction!r}, which needs the whole layer, "
                        "but DeepSpeed ZeRO or FSDP1 has flattened it; build the optimizer with "
                        'preset="rows" or direction="gradient", or use FSDP2 '
                        "(torch.distributed.fsdp.fully_shard)"
                    )
            flat = update.weight.detach()
            made = parts_of(
                *(flat, update.state, self.pieces, self.state_places, hypers, self.plan),
                update.backend,
            )
            self._parts = key, made
        return self._parts[1]
