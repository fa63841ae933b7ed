"""A range of a flattened parameter, divided into boxes: they tile it, and whole neurons are whole."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nero.core.neurons import Layout
from nero.distributed.flat.boxes import Piece, boxes_of, form_of
from nero.distributed.flat.plan import _plan
from nero.layout import neurons

LAYOUTS = {
    "rows": ((7, 5), neurons(0)),
    "kernels": ((5, 4, 3), neurons(0)),
    "columns": ((6, 5), neurons(1)),
    "transposed": ((4, 5, 3), neurons(1)),
    "groups": ((6, 4, 3), neurons(1, num_groups=2)),
    "experts": ((3, 4, 5), neurons(0, 2)),
    "bias": ((9,), Layout("bias")),
    "fan-in of one": ((9, 1), neurons(0)),
}


@pytest.mark.parametrize("name", LAYOUTS)
@given(data=st.data())
def test_boxes_tile_a_range(name, data):
    shape, layout = LAYOUTS[name]
    found = layout.at(shape)
    form = form_of(shape, found)
    numel = math.prod(shape)
    start = data.draw(st.integers(0, numel))
    stop = data.draw(st.integers(start, numel))
    elements = torch.arange(numel)
    boxes = boxes_of(form, start, stop, offset=100)
    reached = 100
    for box in boxes:
        assert box.first == reached
        reached += box.numel
        of_range = elements[start:][box.first - 100 :][: box.numel]
        where = tuple(slice(o, o + n) for o, n in zip(box.origin, box.sizes, strict=True))
        assert torch.equal(elements.view(form.sizes)[where].reshape(-1), of_range)
        sizes, dims = box.view(form)
        assert math.prod(sizes) == box.numel
        if box.is_whole(form) and dims:
            assert math.prod(sizes[d] for d in dims) == found.fan_in
    assert reached == 100 + stop - start


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_whole_parameter_is_one_box_of_whole_neurons(name):
    shape, layout = LAYOUTS[name]
    form = form_of(shape, layout.at(shape))
    (box,) = boxes_of(form, 0, math.prod(shape))
    assert box.is_whole(form)


def piece(start, stop):
    return Piece("`weight`", (4, 5), neurons(0).at((4, 5)), 3, 0, start, stop)


def test_only_blocks_that_a_cut_falls_into_are_shared():
    plan = _plan([piece(0, 10)], [(3, 0, 10), (3, 10, 12), (3, 12, 20)])
    assert plan.slots == {(3, 2): (0, 0)}
    assert plan.num_slots == 1


@pytest.mark.parametrize(
    "parts", [[(3, 0, 10), (3, 11, 20)], [(3, 0, 12), (3, 10, 20)], [(3, 0, 10)], []]
)
def test_ranges_that_do_not_tile_a_parameter_are_refused(parts):
    with pytest.raises(RuntimeError, match=r"`weight` has 20 elements, but .* do not cover it"):
        _plan([piece(0, 10)], parts)
