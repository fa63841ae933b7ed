import os
import warnings

from tests.integrations.bare_timm import import_timm

os.environ["KERAS_BACKEND"] = "torch"  # Keras reads it when it is imported
import_timm()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import fastai.callback.schedule  # noqa: F401  it sets options of pandas that are about to go
