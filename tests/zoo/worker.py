"""One process that studies models: an entry per line comes in, a result per line goes out."""

import json
import os
import sys
import warnings


def main() -> None:
    """Answer until there is nothing more to study."""
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        # Models compare the number of image tokens with that of patches; there are no values to count.
        "TRANSFORMERS_DISABLE_TORCH_CHECK": "1",
    }
    answers = os.fdopen(os.dup(1), "w")
    sys.stdout = sys.stderr  # whatever a model prints
    warnings.simplefilter("ignore")
    import torch

    from tests.zoo.catalogue import Entry
    from tests.zoo.study import study

    torch.set_num_threads(1)
    print(json.dumps("ready"), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(study(Entry(*json.loads(line)))), file=answers, flush=True)


if __name__ == "__main__":
    main()
