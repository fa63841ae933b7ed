"""The record of the kernels' machine code, and one row of it derived anew."""

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from nero.backends.triton.table import KEPT, TILES, Kind
from nero_tools.bench.gpu import machine_code, roofline
from nero_tools.bench.gpu.cards import CARDS
from nero_tools.bench.gpu.machine_code import (
    ARCHITECTURES,
    DTYPES,
    Counts,
    MachineCode,
    compiled_tile,
    warp_size,
)
from nero_tools.bench.gpu.predicted import PREDICTED_MODEL, PREDICTED_MS, predicted_ms
from nero_tools.models import MODELS

RECORD = json.loads((Path(__file__).parents[3] / "records" / "gpu-roofline.json").read_text())
compiles = pytest.mark.skipif(
    "TRITON_INTERPRET" in os.environ, reason="the interpreter compiles nothing"
)


@compiles
@pytest.mark.parametrize("kind", [Kind.ROWS_1024, Kind.LONG])
def test_a_row_of_the_record(kind):
    """Registers and counts may change with Triton's version; that nothing is spilled may not."""
    code = compiled_tile(kind, "float32", 80)
    (row,) = [
        row
        for row in RECORD["tiles"]
        if (row["tile"], row["dtype"], row["architecture"]) == (kind.name.lower(), "float32", 80)
    ]
    assert code.num_spills == row["spills"] == 0
    assert code.stack_bytes == 0
    assert code.counts.wide_load >= 8, "weights and gradients, 128 bits at a time"
    # Other versions of the compiler take a few registers and instructions more or less.
    assert code.registers == pytest.approx(row["registers"], rel=0.2)
    assert code.counts.total == pytest.approx(row["instructions"], rel=0.2)


@pytest.mark.slow
@compiles
def test_the_command(capsys, tmp_path):
    """One architecture and one dtype, with all kinds of tiles: what else varies is data."""
    file = tmp_path / "roofline.json"
    only = ["--architectures", "80", "--dtypes", "float32", "--json", str(file)]
    roofline.main(["--model", "resnet-tiny", *only])
    assert "a step of resnet-tiny" in capsys.readouterr().out
    report = json.loads(file.read_text())
    recorded = [r for r in RECORD["tiles"] if (r["dtype"], r["architecture"]) == ("float32", 80)]
    assert [row["tile"] for row in report["tiles"]] == [row["tile"] for row in recorded]
    assert not any(row["spills"] for row in report["tiles"])
    assert [each["card"] for each in report["predictions"]] == ["A100 80 GB SXM"]
    assert report["predictions"][0]["step"] > report["predictions"][0]["copy"] > 0


@compiles
@pytest.mark.parametrize(("target", "size"), [("gfx90a", 64), ("gfx942", 64), ("gfx1100", 32)])
def test_a_row_of_the_record_for_amd(target, size):
    code = compiled_tile(Kind.ROWS_1024, "float32", target)
    (row,) = [
        row
        for row in RECORD["tiles"]
        if (row["tile"], row["dtype"], row["architecture"]) == ("rows_1024", "float32", target)
    ]
    assert row["warp_size"] == warp_size(target) == size
    assert code.num_spills == code.num_spilled == row["spills"] == code.stack_bytes == 0
    assert code.counts.wide_load >= 2, "weights and gradients, 128 bits at a time"
    assert code.registers == pytest.approx(row["registers"], rel=0.2)
    assert code.scalar_registers == pytest.approx(row["scalar_registers"], rel=0.2)
    assert code.counts.total == pytest.approx(row["instructions"], rel=0.2)


def test_loops_of_amd_code_are_whole_and_count_once():
    """A rare block behind a loop's end goes back into it, which makes no loop of its own."""
    text = "\tv_add_f32\n.LBB0_1: ; in loop\n\tv_mul_f64\n.LBB0_2:\n\tds_read_b32 v0, v1\n"
    text += (
        "\ts_cbranch_execz .LBB0_3\n\ts_cbranch_scc1 .LBB0_1\n.LBB0_3:\n\tglobal_load_dword v0\n"
    )
    text += "\ts_cbranch_execz .LBB0_2\n\ts_cbranch_scc1 .LBB0_1\n\ts_endpgm\n"
    fields = ("vgpr_count", "sgpr_count", "vgpr_spill_count", "sgpr_spill_count")
    for name in (*fields, "private_segment_fixed_size"):
        text += f"    .{name}:     {len(name)}\n"
    code = machine_code._read_amd(text, 16)
    assert (code.registers, code.scalar_registers, code.num_spilled) == (10, 10, 32)
    assert code.counts == Counts(4, 1, 0, 1, 0, 0, 0, 1)
    assert code.loops == (Counts(3, 1, 0, 1, 0, 0, 0, 1),)


def test_a_rare_block_behind_the_end_makes_no_loop():
    """It is entered before the place it goes back to, and never from there."""
    code = [("s_cbranch_scc1", ".LBB0_2", ()), ("v_add_f64", "", (".LBB0_1",))]
    code += [("s_endpgm", "", ()), ("v_mul_f64", "", (".LBB0_2",)), ("s_branch", ".LBB0_1", ())]
    found = machine_code._loops(code, ("s_cbranch", "s_branch"), machine_code._AMD_CLASSES)
    assert list(found) == []


@compiles
@pytest.mark.parametrize("kind", [Kind.ROWS_1024, Kind.LONG])
def test_no_weight_costs_float64(kind):
    """Half as many weights per thread need as many float64 instructions: those of coefficients."""
    full, half = (
        compiled_tile(kind, "float32", 80, block=TILES[kind][1] // part) for part in (1, 2)
    )
    assert full.counts.total > half.counts.total
    assert full.counts.float64 == half.counts.float64
    # A loop adds five sums of a block to float64 ones: five conversions, five additions.
    assert all(loop.float64 <= 10 for loop in full.loops)


def test_next_to_nothing_is_spilled_on_any_architecture():
    rows = RECORD["tiles"]
    assert {row["architecture"] for row in rows} == set(ARCHITECTURES)
    assert {row["dtype"] for row in rows} == set(DTYPES)
    launches = {"all", *(f"all, rows of {length}" for length in KEPT)}
    assert {row["tile"] for row in rows} == launches | {kind.name.lower() for kind in Kind}
    for row in rows:
        assert row.get("float64_in_loops", 0) <= 10, row
    spilled = {
        (row["architecture"], row["dtype"], row["tile"]): (row["spills"], row["stack_bytes"])
        for row in rows
        if row["spills"] or row["stack_bytes"]
    }
    # The compiler puts one register aside for a while, here and in a tile that is compiled by itself.
    assert spilled.keys() <= {
        *((90, "float32", f"all, rows of {length}") for length in (2048, 4096)),
        (120, "float32", "columns"),
    }
    assert all(each == (2, 8) for each in spilled.values())


def test_gpt2_is_predicted_to_take_the_time_of_a_copy():
    """At most 1.15 times the time of moving 12 bytes per weight, in float32."""
    found = {
        each["card"]: each["over_copy"]
        for each in RECORD["predictions"]
        if each["dtype"] == "float32" and each["model"] == "gpt2-124m"
    }
    assert set(found) == {card.name for card in CARDS}
    assert RECORD["cards"] == [asdict(card) for card in CARDS]
    # Its memory has become faster, and its float64 arithmetic has not: 1/64 of the float32 rate. The rows
    # of 3,072 weights have four warps, of which each computes the coefficients.
    assert found.pop("RTX 5090") <= 1.35
    assert max(found.values()) <= 1.15, found


def test_loads_of_a_model_are_all_its_weights():
    with torch.device("meta"):
        model = MODELS["resnet-tiny"]()
        loads = roofline.loads_of(model)
    assert sum(load.num_weights for load in loads) == sum(p.numel() for p in model.parameters())


def test_loops_count_as_often_as_they_run():
    body = Counts(10, 2, 0, 1, 1, 1, 0, 0)
    code = MachineCode(64, 0, 0, Counts(100, 20, 0, 4, 4, 2, 0, 0), (body,))
    block = TILES[Kind.LONG][1]
    totals = [roofline.run_counts(code, block, n * block)["total"] for n in (1, 2, 4)]
    assert totals == [90, 100, 120]


def test_occupancy_follows_from_registers():
    code = MachineCode(128, 0, 0, Counts(0, 0, 0, 0, 0, 0, 0, 0), ())
    assert code.programs_per_sm(80) == 8
    assert code.occupancy(80) == 0.25
    assert code.occupancy(89) == 8 * 2 / 48
    assert code.programs_per_sm("gfx942") == 8, (
        "512 registers per thread of 4 SIMDs: 16 of 32 warps"
    )
    assert code.programs_per_sm("gfx1100") == 10, "1536 on 2 SIMDs, 144 each by allocation"


def test_what_bench_prints_beside_a_measurement_is_in_the_record():
    found = {(each["card"], each["dtype"]): each for each in RECORD["predictions"]}
    assert len(found) == sum(map(len, PREDICTED_MS.values()))
    for (card, dtype), each in found.items():
        assert each["model"] == PREDICTED_MODEL
        assert predicted_ms(card, dtype) == pytest.approx(1000 * each["step"], abs=5e-4)
