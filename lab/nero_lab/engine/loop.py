"""The one training loop: every task runs through here.

An experiment says what a batch is and what to do with it; the loop owns everything else: learning rates,
precision, gradients, sums over steps and ranks, records, checkpoints, and the end.
"""

import contextlib
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from nero_lab.engine import checkpoint
from nero_lab.engine.errors import ConfigError, in_one_line
from nero_lab.engine.progress import Progress
from nero_lab.engine.provenance import peak_memory_bytes
from nero_lab.engine.records import Recorder
from nero_lab.engine.sums import add_, averages
from nero_lab.engine.task import Experiment, Setting, Sums


class DivergedError(ArithmeticError):
    """A loss was not a finite number."""


class StoppedError(Exception):
    """The caller's stopping rule ended the run early."""


Stop = Callable[[int, Mapping[str, float]], str | None]
"""Returns why a run should stop, or None, given the number of finished epochs and the latest scores."""


class Loop:
    """Train an experiment to the end of its recipe.

    Args:
        experiment: what to train.
        optimizers: those of each player, set to the initial learning rate.
        setting: recipe, seed, device and rank.
        checkpoint_path: where the state of the run is kept, if it is.
        checkpoint_steps: steps between two checkpoints; there is one after every epoch too.
        stop: a stopping rule, called after every epoch except the last.
    """

    def __init__(
        self,
        experiment: Experiment,
        optimizers: Mapping[str, list[Optimizer]],
        setting: Setting,
        *,
        checkpoint_path: Path | None = None,
        checkpoint_steps: int = 500,
        stop: Stop | None = None,
    ) -> None:
        self.experiment = experiment
        self.optimizers = optimizers
        self.setting = setting
        self.recipe = setting.recipe
        self.step = 0
        self.sums: Sums = {}
        self.seconds_before = 0.0
        self._peak_before = 0
        self.step_seconds: list[float] = []
        self._initial_lrs = {
            name: [[group["lr"] for group in optimizer.param_groups] for optimizer in owned]
            for name, owned in optimizers.items()
        }
        self._checkpoint_path = checkpoint_path
        self._checkpoint_steps = checkpoint_steps
        self._stop = stop
        self._began = time.monotonic()
        self._modules = dict(experiment.players)  # before they are wrapped
        if setting.world_size > 1:
            for name, module in self._modules.items():
                experiment.players[name] = DistributedDataParallel(module)

    @property
    def num_steps(self) -> int:
        """Steps of the whole run."""
        return self.recipe.epochs * self.experiment.steps_per_epoch

    @property
    def epoch(self) -> float:
        """Epochs done so far."""
        return self.step / self.experiment.steps_per_epoch

    @property
    def seconds(self) -> float:
        """Time spent on this run, also before it was resumed."""
        return self.seconds_before + time.monotonic() - self._began

    @property
    def peak_memory_bytes(self) -> int:
        """The most memory that this run has held, also before it was resumed."""
        return max(self._peak_before, peak_memory_bytes(self.setting.device))

    def resume(self) -> int | None:
        """Resume from the checkpoint, if there is one, and return the size of the records then.

        Raises:
            ConfigError: if it is damaged, or of another network or optimizer.
        """
        path = self._checkpoint_path
        state = checkpoint.load(path, self.setting.device) if path else None
        if state is None:
            return None
        try:
            return self._restore(state)
        except Exception as error:
            raise ConfigError(
                f"{path} does not match this run ({in_one_line(error)}); remove it to start the run over"
            ) from error

    def _restore(self, state: dict[str, Any]) -> int:
        self.step, self.seconds_before = state["step"], state["seconds"]
        self._peak_before = state["peak_memory_bytes"]
        own = checkpoint.select_rank(state["ranks"])
        self.sums = {name: (total, count) for name, (total, count) in own["sums"].items()}
        for name, module in self._modules.items():
            module.load_state_dict(state["players"][name])
            for optimizer, saved in zip(
                self.optimizers[name], state["optimizers"][name], strict=True
            ):
                optimizer.load_state_dict(saved)
        self.experiment.load_state_dict(state["experiment"])
        checkpoint.set_random_state(own["random"])
        size: int = state["records_size"]
        return size

    def train(self, recorder: Recorder | None, progress: Progress) -> None:
        """Train until the last epoch is done.

        Raises:
            DivergedError: if a loss is not finite. What was seen until then is recorded.
            StoppedError: if the rule that was given says so.
        """
        self.begin()
        steps_per_epoch = self.experiment.steps_per_epoch
        log_every = max(self.num_steps // self.recipe.num_step_records, 1)
        while self.step < self.num_steps:
            epoch, start = divmod(self.step, steps_per_epoch)
            for batch in self.experiment.batches(epoch, start):
                lr, seen = self.take_step(batch)
                add_(self.sums, seen)
                if self.step % log_every == 0 or self.step % steps_per_epoch == 0:
                    values = averages(seen, self.setting)
                    progress.on_step(self.step, values)
                    if recorder:
                        self._record_step(recorder, lr, values)
                    _check_finite(values, self.step)
                if self.step % self._checkpoint_steps == 0 and self.step % steps_per_epoch:
                    self._save(recorder)
            if self.step != (epoch + 1) * steps_per_epoch:
                raise RuntimeError(
                    f"epoch {epoch} ended at step {self.step}, not after {steps_per_epoch} steps"
                )
            self._end_epoch(recorder, progress)

    def begin(self) -> None:
        """Switch optimizers that have such modes to training, before the first step."""
        for optimizer in self._switching():
            optimizer.train()

    def batches(self) -> Iterator[Any]:
        """Yield batches without end, from the step that is next."""
        for epoch in itertools.count(self.step // self.experiment.steps_per_epoch):
            yield from self.experiment.batches(epoch, self.step % self.experiment.steps_per_epoch)

    def take_step(self, batch: Any) -> tuple[float, Sums]:
        """Train on one batch; return the learning rate and what was seen, and keep the time."""
        lr, began = self._set_lrs(), self._clock()
        seen = self._advance(batch)
        self.step_seconds.append(self._clock() - began)
        self.step += 1
        return lr, seen

    def _clock(self) -> float:
        """Return the time of this process on a CPU, whatever else runs there, or of the GPU."""
        if self.setting.device.type == "cpu":
            return time.process_time()
        torch.cuda.synchronize(self.setting.device)
        return time.perf_counter()

    def _advance(self, batch: Any) -> Sums:
        for player in self.experiment.players.values():
            player.train()
        with self._precision():
            return self.experiment.advance(batch, self._take)

    def _take(self, player: str, loss: Tensor) -> None:
        """Update one player from its loss."""
        for optimizer in self.optimizers[player]:
            optimizer.zero_grad()
        # Only forward passes are to run in low precision.
        with torch.autocast(self.setting.device.type, enabled=False):
            loss.backward()
            if self.setting.clip_norm is not None:
                clip_grad_norm_(self._modules[player].parameters(), self.setting.clip_norm)
            for optimizer in self.optimizers[player]:
                optimizer.step()
        # Autocast keeps weights that it has cast; another update of this batch must see the new ones.
        torch.clear_autocast_cache()

    def _end_epoch(self, recorder: Recorder | None, progress: Progress) -> None:
        self._share_buffers()
        with self._averaged_weights(), self._precision():
            seen = {"train": self.sums, "valid": self.experiment.evaluate()}
            if self.step == self.num_steps:
                seen["test"] = self.experiment.evaluate(test=True)
        scores = {
            f"{split}_{name}": value
            for split, sums in seen.items()
            for name, value in averages(sums, self.setting).items()
        }
        scores |= self.experiment.derive(scores)
        progress.on_epoch(round(self.epoch), scores)
        if recorder:
            fields = {"epoch": round(self.epoch), "step": self.step, **scores}
            recorder.write("epoch", {**fields, "clock": {"seconds": round(self.seconds, 1)}})
            recorder.curves(self.step, scores)
        trained = {name: value for name, value in scores.items() if not name.startswith("test_")}
        _check_finite(trained, self.step)
        self.sums = {}
        self._save(recorder)
        why = self._stop and self.step < self.num_steps and self._stop(round(self.epoch), scores)
        if why:
            raise StoppedError(why)

    def _record_step(self, recorder: Recorder, lr: float, values: dict[str, float]) -> None:
        epoch = round(self.epoch, 4)
        recorder.write("step", {"step": self.step, "epoch": epoch, "lr": lr, **values})
        recorder.curves(self.step, {**values, "lr": lr})

    def _set_lrs(self) -> float:
        """Set every group to its initial rate times the schedule, and return the first of them."""
        epoch = (self.step + 0.5) / self.experiment.steps_per_epoch  # the middle of the step
        factor = self.recipe.schedule(epoch, self.recipe.epochs)
        for name, owned in self.optimizers.items():
            for optimizer, lrs in zip(owned, self._initial_lrs[name], strict=True):
                for group, lr in zip(optimizer.param_groups, lrs, strict=True):
                    group["lr"] = lr * factor
        first = next(iter(self.optimizers.values()))[0]
        return float(first.param_groups[0]["lr"])

    def _share_buffers(self) -> None:
        """Give every rank the first one's statistics of batch norm, which are the ones that are saved."""
        if self.setting.world_size > 1:
            for module in self._modules.values():
                for buffer in module.buffers():
                    dist.broadcast(buffer, src=0)

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        low = self.recipe.precision == "bfloat16"
        return torch.autocast(self.setting.device.type, torch.bfloat16, enabled=low)

    @contextlib.contextmanager
    def _averaged_weights(self) -> Iterator[None]:
        """Switch optimizers with separate evaluation weights, such as schedule-free ones, to those."""
        for optimizer in self._switching():
            optimizer.eval()
        yield
        for optimizer in self._switching():
            optimizer.train()

    def _switching(self) -> list[Any]:
        return [o for owned in self.optimizers.values() for o in owned if hasattr(o, "eval")]

    def _save(self, recorder: Recorder | None) -> None:
        ranks = checkpoint.gather_ranks(
            {
                "sums": {name: list(pair) for name, pair in self.sums.items()},
                "random": checkpoint.random_state(),
            }
        )
        if recorder is None or self._checkpoint_path is None:
            return
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "ranks": ranks,
            "players": {name: module.state_dict() for name, module in self._modules.items()},
            "optimizers": {
                name: [optimizer.state_dict() for optimizer in owned]
                for name, owned in self.optimizers.items()
            },
            "experiment": self.experiment.state_dict(),
            "records_size": recorder.sync(),
            "peak_memory_bytes": self.peak_memory_bytes,
        }
        checkpoint.save(self._checkpoint_path, state)

    def summary(self) -> dict[str, Any]:
        """Return what the end of a run is recorded with, apart from the clock."""
        state = [
            value
            for owned in self.optimizers.values()
            for optimizer in owned
            for kept in optimizer.state_dict()["state"].values()
            for value in kept.values()
            if isinstance(value, Tensor)
        ]
        return {
            "step": self.step,
            "epoch": round(self.epoch, 4),
            "optimizer_state_bytes": sum(value.nbytes for value in state),
        }

    def median_step_seconds(self) -> float:
        """Return the median time of a step since the run was begun or resumed, by ``_clock``."""
        return statistics.median(self.step_seconds) if self.step_seconds else math.nan


def _check_finite(values: Mapping[str, float], step: int) -> None:
    for name, value in values.items():
        if not math.isfinite(value) and "loss" in name:
            raise DivergedError(f"{name} is {value} at step {step}")
