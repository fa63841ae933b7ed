"""The network of ImageNet, and folders of images."""

import shutil

import pytest
import torch
from image_examples import setting
from parameters import num_params
from PIL import Image

from nero_lab.data.image_folder import ImageFolder, centre_crop, random_crop
from nero_lab.engine.errors import DataError
from nero_lab.engine.task import Setting
from nero_lab.models.resnet import resnet50
from nero_lab.tasks.imagenet import IMAGENET, make_up_images


@pytest.fixture(scope="module")
def images():
    """A folder of made-up images: four classes, eight images each for training."""
    root = make_up_images(0, num_images=8)
    yield root
    shutil.rmtree(root)


def test_resnet50_has_its_well_known_size():
    model = resnet50()
    assert num_params(model) == 25_557_032
    assert model(torch.randn(2, 3, 64, 64)).shape == (2, 1000)


def test_random_crops_lie_within_the_image_and_depend_on_their_generator_alone():
    column = torch.arange(60, dtype=torch.uint8).expand(40, 60)
    image = Image.fromarray(torch.stack([column + 1] * 3, 2).numpy())
    crops = [random_crop(image, 16, torch.Generator().manual_seed(n % 50)) for n in range(100)]
    assert all(crop.size == (16, 16) and crop.getextrema()[0][0] > 0 for crop in crops)
    assert [crop.tobytes() for crop in crops[:50]] == [crop.tobytes() for crop in crops[50:]]
    ascending = sum(crop.getpixel((0, 0)) < crop.getpixel((15, 0)) for crop in crops[:50])
    assert 10 < ascending < 40  # mirrored half of the time; 4 standard deviations


def test_a_very_long_image_is_cropped_at_its_centre():
    image = Image.new("RGB", (400, 4))
    image.paste((255, 255, 255), (190, 0, 210, 4))
    crop = random_crop(image, 8, torch.Generator().manual_seed(0))
    assert crop.getextrema()[0] == (255, 255)


def test_a_centre_crop_keeps_seven_eighths():
    image = Image.new("RGB", (48, 32))
    image.paste((255, 255, 255), (10, 2, 38, 30))
    assert centre_crop(image, 28).getextrema()[0] == (255, 255)


def test_an_image_folder_reads_what_was_written(tmp_path):
    for name, value in (("ant", 0), ("bee", 51)):
        (tmp_path / "val" / name).mkdir(parents=True)
        for number in range(3):
            colour = (value, value + number, 255)
            Image.new("RGB", (20, 30), colour).save(tmp_path / "val" / name / f"{number}.PNG")
        (tmp_path / "val" / name / "notes.txt").write_text("not an image")
    folder = ImageFolder(tmp_path / "val", size=8)
    assert (folder.classes, len(folder)) == (["ant", "bee"], 6)
    pixels, labels = next(folder.in_order(setting(tmp_path)))
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    bytes_ = (pixels[:, :, 4, 4] * std + mean) * 255
    expected = [[v, v + n, 255] for v in (0, 51) for n in range(3)]
    torch.testing.assert_close(bytes_, torch.tensor(expected, dtype=torch.float32))


def test_workers_read_what_one_process_reads(images, tmp_path):
    where = setting(tmp_path)
    alone = ImageFolder(images / "train", size=16).shuffled(where, 0, 2)
    helped = ImageFolder(images / "train", size=16, num_workers=2).shuffled(where, 0, 2)
    for (a, b), (c, d) in zip(alone, helped, strict=True):
        assert torch.equal(a, c)
        assert torch.equal(b, d)


def test_a_folder_can_be_cut_to_its_first_classes(images):
    folder = ImageFolder(images / "train", size=16, num_classes=2)
    assert (len(folder.classes), len(folder)) == (2, 16)
    with pytest.raises(DataError, match="4 classes, not 5"):
        _ = ImageFolder(images / "train", size=16, num_classes=5).classes


def test_missing_images_are_asked_for_by_their_layout(tmp_path):
    where = Setting(IMAGENET.recipes["paper"], 0, tmp_path)
    with pytest.raises(DataError, match=r"imagenet.*\{train,val\}.*<class>.*\.JPEG"):
        IMAGENET.build(where)
    (tmp_path / "imagenet" / "train" / "ant").mkdir(parents=True)
    with pytest.raises(DataError, match="no images in"):
        len(ImageFolder(tmp_path / "imagenet" / "train", size=8))
