"""Eight devices that each hold whole neurons have nothing to tell each other."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("optax", reason="nero.jax needs the extra nero-optim[jax]")

COLLECTIVES = r"\b(all-reduce|all-gather|reduce-scatter|collective-permute|all-to-all)(-start)?\("


def test_no_collective_where_devices_hold_whole_neurons(tmp_path):
    done = subprocess.run(
        [sys.executable, __file__, str(tmp_path)],
        env={
            **os.environ,
            "XLA_FLAGS": "--xla_force_host_platform_device_count=8",
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    by_neurons, by_fan_in = (
        re.findall(COLLECTIVES, (tmp_path / f"{name}.hlo").read_text())
        for name in ("neurons", "fan_in")
    )
    assert by_neurons == []
    assert by_fan_in, "the pattern finds no collective where there must be one"
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["state_is_sharded"]
    # The compiler orders sums over a shard differently: 2 units in the last place after five steps.
    assert result["largest_difference"] <= 5e-7
    # Twice, as for any optax transformation: the counters of `init` are on one device, later on all.
    assert result["num_compilations"] <= 2


def main(folder: Path) -> None:
    import jax
    import jax.numpy as jnp
    import optax
    from jax.sharding import NamedSharding, PartitionSpec

    import nero.jax

    assert len(jax.devices()) == 8
    mesh = jax.make_mesh((8,), ("model",))
    shapes = {"Dense_0": {"kernel": (32, 64), "bias": (64,)}, "Conv_0": {"kernel": (3, 3, 8, 16)}}
    shapes |= {"Embed_0": {"embedding": (40, 24)}, "LayerNorm_0": {"scale": (64,)}}

    def random(seed):
        keys = iter(jax.random.split(jax.random.key(seed), 9))
        is_shape = lambda x: isinstance(x, tuple)  # noqa: E731
        return jax.tree.map(lambda n: jax.random.normal(next(keys), n), shapes, is_leaf=is_shape)

    def sharded(tree, *, over_neurons):
        def put(path, x):
            # Neurons are along the last dim of a kernel, the first of an embedding.
            is_last = x.ndim == 1 or (path[-1].key == "kernel") == over_neurons
            dims = [None] * x.ndim
            dims[-1 if is_last else -2] = "model"
            return jax.device_put(x, NamedSharding(mesh, PartitionSpec(*dims)))

        return jax.tree_util.tree_map_with_path(put, tree)

    tx = nero.jax.nero(momentum=0.9, gain_penalty=0.1)

    @jax.jit
    def step(params, state, grads):
        updates, state = tx.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    start, results = nero.jax.project(random(0)), {}
    for name in ("alone", "neurons", "fan_in"):

        def place(tree, name=name):
            return tree if name == "alone" else sharded(tree, over_neurons=name == "neurons")

        params = place(start)
        state = tx.init(params)
        (folder / f"{name}.hlo").write_text(
            step.lower(params, state, place(random(1))).compile().as_text()
        )
        size = step._cache_size()
        for seed in range(1, 6):
            params, state = step(params, state, place(random(seed)))
        results[name] = params, state, step._cache_size() - size
    alone, (params, state, num_compilations) = results["alone"][0], results["neurons"]
    differences = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), alone, params)
    average = state.params["Dense_0/kernel"]["exp_avg_norm"]
    (folder / "result.json").write_text(json.dumps({
        "largest_difference": max(jax.tree.leaves(differences)),
        "state_is_sharded": average.sharding.shard_shape(average.shape) == (1, 8),
        "num_compilations": num_compilations,
    }))  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]))
