"""The perceptrons on MNIST: what the shallow and the very deep ones have in common."""

from nero_lab.data import files, mnist
from nero_lab.engine.task import Setting
from nero_lab.experiments.classification import Classification, StoredImages
from nero_lab.models.mlp import MLP


def build(setting: Setting) -> Classification:
    """Return the perceptron and MNIST as the options of the recipe say."""
    folder = files.folder("mnist", setting.data_dir)
    train, valid = (
        StoredImages(*mnist.load(folder, split), mnist.MEAN, mnist.STD).first(
            setting.option("num_images")
        )
        for split in ("train", "valid")
    )
    model = MLP(
        num_layers=setting.option("num_layers"),
        width=setting.option("width"),
        init=setting.option("init"),
        biases=setting.option("biases"),
        sigma=setting.option("sigma"),
    )
    return Classification(setting, model, train=train, valid=valid)
