"""Nero with the preset "polar" for AlgoPerf's self-tuning ruleset: one learning rate and one schedule.

Which parameters are neurons, embeddings, output layers, gains and biases is read from a workload's modules
and one forward pass, so nothing here knows a workload but the batch sizes. The schedule ends at the step
hint.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from algoperf import spec

import nero

BATCH_SIZES = {
    "criteo1tb": 262_144,
    "fastmri": 32,
    "imagenet_resnet_silu": 512,  # variants stand before their workload
    "imagenet_resnet_gelu": 512,
    "imagenet_resnet": 1024,
    "imagenet_vit": 1024,
    "librispeech_conformer": 256,
    "librispeech_deepspeech": 256,
    "ogbg": 512,
    "wmt": 128,
    "mnist": 16,
}


def get_batch_size(workload_name: str) -> int:
    """Return the batch size of a workload or a variant of it; the same as AlgoPerf's own baselines use.

    Raises:
        ValueError: if there is no such workload.
    """
    for name, size in BATCH_SIZES.items():
        if workload_name == name or workload_name.startswith(f"{name}_"):
            return size
    raise ValueError(
        f"workload_name must be one of {', '.join(BATCH_SIZES)}, not {workload_name!r}"
    )


def init_optimizer_state(
    workload: spec.Workload,
    model_params: spec.ParameterContainer,
    model_state: spec.ModelAuxiliaryState,
    hyperparameters: spec.Hyperparameters,
    rng: spec.RandomState,
) -> spec.OptimizerState:
    """Return nothing yet: the optimizer needs a batch, which only ``update_params`` has."""
    return {}


def update_params(
    workload: spec.Workload,
    current_param_container: spec.ParameterContainer,
    current_params_types: spec.ParameterTypeTree,
    model_state: spec.ModelAuxiliaryState,
    hyperparameters: spec.Hyperparameters,
    batch: dict[str, spec.Tensor],
    loss_type: spec.LossType,
    optimizer_state: spec.OptimizerState,
    eval_results: list[tuple[int, float]],
    global_step: int,
    rng: spec.RandomState,
    train_state: dict[str, Any] | None = None,
) -> spec.UpdateReturn:
    """Take one step. Gradients are not clipped: Nero's steps don't depend on their size."""
    model = current_param_container
    model.train()

    def forward(model: torch.nn.Module) -> tuple[torch.Tensor, spec.ModelAuxiliaryState]:
        return workload.model_fn(
            params=model,
            augmented_and_preprocessed_input_batch=batch,
            model_state=model_state,
            mode=spec.ForwardPassMode.TRAIN,
            rng=rng,
            update_batch_norm=True,
        )

    # At the first step of a process:
    if not isinstance(optimizer_state.get("optimizer"), nero.Nero):
        plain = getattr(model, "module", model)  # without DDP
        optimizer_state = build(plain, forward, workload.step_hint, saved=optimizer_state)
    optimizer_state["optimizer"].zero_grad(set_to_none=True)
    logits, new_model_state = forward(model)
    losses = workload.loss_fn(
        label_batch=batch["targets"], logits_batch=logits, mask_batch=batch.get("weights")
    )
    mean_loss(losses["summed"], losses["n_valid_examples"]).backward()
    optimizer_state["optimizer"].step()
    if global_step < workload.step_hint:
        optimizer_state["scheduler"].step()
    return optimizer_state, model, new_model_state


def build(
    model: torch.nn.Module, forward: Any, num_steps: int, *, saved: Mapping[str, Any]
) -> dict[str, Any]:
    """Make the optimizer and its schedule, and load what a checkpoint has of them.

    AlgoPerf restores checkpoints before the first step, and returns the states of what we had not made yet.
    """
    optimizer = nero.Nero(model, preset="polar", example=forward)
    schedule = nero.cosine_schedule(optimizer, num_steps=num_steps)
    built = {"optimizer": optimizer, "scheduler": schedule}
    for name, state in saved.items():
        built[name].load_state_dict(state)
    return built


def mean_loss(summed: torch.Tensor, num_valid: torch.Tensor | float) -> torch.Tensor:
    """Return a loss whose gradients, once DDP has averaged them, are those of the mean over all ranks."""
    if not (dist.is_available() and dist.is_initialized()):
        return summed / num_valid
    total = torch.as_tensor(num_valid, dtype=summed.dtype, device=summed.device).detach().clone()
    dist.all_reduce(total)
    return summed * (dist.get_world_size() / total)


def prepare_for_eval(
    workload: spec.Workload,
    current_param_container: spec.ParameterContainer,
    current_params_types: spec.ParameterTypeTree,
    model_state: spec.ModelAuxiliaryState,
    hyperparameters: spec.Hyperparameters,
    loss_type: spec.LossType,
    optimizer_state: spec.OptimizerState,
    eval_results: list[tuple[int, float]],
    global_step: int,
    rng: spec.RandomState,
) -> spec.UpdateReturn:
    """Evaluate the parameters as they are."""
    return optimizer_state, current_param_container, model_state


def data_selection(
    workload: spec.Workload,
    input_queue: Any,
    optimizer_state: spec.OptimizerState,
    current_param_container: spec.ParameterContainer,
    model_state: spec.ModelAuxiliaryState,
    hyperparameters: spec.Hyperparameters,
    global_step: int,
    rng: spec.RandomState,
) -> dict[str, spec.Tensor]:
    """Return the next batch."""
    return next(input_queue)
