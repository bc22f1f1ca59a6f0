"""A model goes to a stand-in of the Hugging Face Hub, and comes back."""

import json

import numpy as np
import pytest
import yaml
from support.hugging_face import commit, hub_server
from support.small_datasets import save_image
from support.tiny import batch, tiny_model

from effdet_keras.cli import main
from effdet_keras.data import load
from effdet_keras.extras.remote.hugging_face import parse_hub_address
from effdet_keras.extras.sharing.push import GENERATED, is_ours_to_write, model_card
from effdet_keras.model.efficientdet import EfficientDet
from effdet_keras.predictor import Predictor
from effdet_keras.runs.configuration import RunConfiguration
from effdet_keras.runs.run_folder import RunFolder
from effdet_keras.weights.archive import write_archive
from effdet_keras.weights.assign import assign_source
from effdet_keras.weights.read_weights import read_weights

needs_library = pytest.mark.extra_packages


@pytest.fixture
def hub(tmp_path, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    with hub_server() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.address)
        template = server.address + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        yield server


@pytest.mark.smoke
@needs_library
def test_a_pushed_model_is_pulled_again(hub, capsys):
    model = tiny_model()
    model.push_to_hub("hf://me/pets", license="mit", private=True)
    assert set(hub.repositories["me/pets"]) == {
        "best.keras",
        "archive.json",
        "README.md",
    }
    assert hub.private == {"me/pets"}
    pulled = EfficientDet.from_archive("hf://me/pets")
    for one, other in zip(model.weights, pulled.weights):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert Predictor.load("hf://me/pets@main").class_names == model.class_names
    source = read_weights("hf://me/pets/best.keras", None)
    assert source.class_names == model.class_names
    hub.shutdown(), hub.server_close()  # from the cache alone
    assert Predictor.load("hf://me/pets").class_names == model.class_names
    with pytest.raises(OSError, match="'hf://me/others' cannot be opened"):
        Predictor.load("hf://me/others")


@needs_library
def test_another_model_is_not_overwritten(hub):
    tiny_model().push_to_hub("hf://me/pets")
    before = commit(hub, "me/pets")
    tiny_model().push_to_hub("hf://me/pets")  # the same model: another commit
    assert commit(hub, "me/pets") != before
    files = hub.repositories["me/pets"]
    files["README.md"] = b"# My own words"
    other = tiny_model(class_names=("a", "b", "c"))
    with pytest.raises(FileExistsError, match="another model.*archive.json"):
        other.push_to_hub("hf://me/pets")
    other.push_to_hub("hf://me/pets", overwrite=True)
    assert b'"a"' in files["archive.json"] and files["README.md"] == b"# My own words"
    with pytest.raises(RuntimeError, match="public"):
        other.push_to_hub("hf://me/pets", private=True)


@needs_library
def test_a_second_push_keeps_the_licence_of_the_card(hub):
    files = hub.repositories["me/pets"] = {"README.md": b"---\nlicense: mit\n---\n"}
    tiny_model().push_to_hub("hf://me/pets")  # that of a card made on the web
    assert b"license: mit\n" in files["README.md"]
    tiny_model().push_to_hub("hf://me/pets", license="apache-2.0")
    tiny_model().push_to_hub("hf://me/pets")
    assert b"license: apache-2.0\n" in files["README.md"]
    assert b"## Licence\n\napache-2.0" in files["README.md"]


@needs_library
def test_what_detects_is_pushed_alone(hub, tmp_path):
    model = tiny_model()
    model.compile(optimizer="adam", ema_decay=0.5)
    model.fit(*batch(), epochs=1, verbose=0)
    path = tmp_path / "best.keras"
    write_archive(model, path, {"epoch": 3})
    model.push_to_hub("hf://me/pets")
    pushed = hub.repositories["me/pets"]["best.keras"]
    assert len(pushed) < 0.6 * path.stat().st_size
    detecting = EfficientDet.from_archive(path)  # of the averages
    pulled = EfficientDet.from_archive("hf://me/pets")
    assert not pulled.compiled
    for one, other in zip(detecting.weights, pulled.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), other.numpy())


@needs_library
def test_an_export_is_named(hub, tmp_path):
    tiny_model().export(tmp_path / "pets.tflite")
    content = (tmp_path / "pets.tflite").read_bytes()
    hub.repositories["me/phone"] = {"README.md": b"a", "pets.tflite": content}
    predictor = Predictor.load("hf://me/phone/pets.tflite")
    assert predictor.class_names == ("cat", "dog", "bird")
    with pytest.raises(FileNotFoundError, match="no checkpoint in 'hf://me/phone"):
        Predictor.load("hf://me/phone")


@needs_library
def test_weights_of_effdet_alone_are_understood(hub, tmp_path):
    model = tiny_model()
    model.export_checkpoint(tmp_path / "model.safetensors", format="torch-effdet")
    content = (tmp_path / "model.safetensors").read_bytes()
    hub.repositories["me/effdet"] = {"config.json": b"{}", "model.safetensors": content}
    source = read_weights("hf://me/effdet", None)
    other = tiny_model()
    report = assign_source(other, source)
    assert (report.num_loaded, report.left_over) == (len(other.weights), ())
    for one, two in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(one.numpy(), two.numpy())


@needs_library
def test_what_is_wrong_is_told_in_the_words_of_the_library(hub):
    for address, said in (
        ("hf://me/none", "me/none.*Repository Not Found"),
        ("hf://me/text@v9", "me/text@v9.*Revision Not Found"),
        ("hf://me/text", "no checkpoint in 'hf://me/text"),
    ):
        hub.repositories["me/text"] = {"README.md": b"a", "notes.txt": b"b"}
        with pytest.raises(FileNotFoundError, match=said):
            Predictor.load(address)
    hub.gated.add("me/gated")
    with pytest.raises(OSError, match="me/gated.*gated"):
        Predictor.load("hf://me/gated")
    hub.refused = 403
    with pytest.raises(OSError, match="not pushed to 'hf://me/pets'.*403"):
        tiny_model().push_to_hub("hf://me/pets")


@needs_library
def test_the_command_shares_an_archive(hub, tmp_path, capsys):
    path = tmp_path / "pets.keras"
    write_archive(tiny_model(), path, {"metrics": {"AP": 0.5}})
    assert main(["share", str(path), "hf://me/pets", "--license", "mit"]) == 0
    assert "commit" in capsys.readouterr().out
    card = hub.repositories["me/pets"]["README.md"].decode()
    assert yaml.safe_load(card.split("---")[1])["license"] == "mit"
    assert "| AP | 0.5000 |" in card


@needs_library
def test_the_command_shares_a_run(hub, tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.begin(RunConfiguration(data="/home/somebody/pets"))
    split = {"images": 8, "boxes": 9, "sha256": "0"}
    folder.write_json("data", {"class_names": ["cat"], "splits": {"train": split}})
    folder.write_json("numbers", {"split": "valid", "epoch": 2, "AP": 0.25, "APs": -1})
    write_archive(tiny_model(), folder.archive / "best.keras", {"epoch": 2})
    assert main(["share", str(folder.path), "hf://me/pets"]) == 0
    card = hub.repositories["me/pets"]["README.md"].decode()
    assert "| train | 8 | 9 |" in card and "\npets\n" in card
    assert "'valid'" in card and "| AP | 0.2500 |" in card
    assert "somebody" not in card


@needs_library
@pytest.mark.parametrize("name", ["data", "numbers"])
def test_a_damaged_file_of_a_run_is_named(hub, tmp_path, capsys, name):
    folder = RunFolder(tmp_path / "run")
    folder.begin(RunConfiguration(data="pets"))
    (folder.path / f"{name}.json").write_text('{"splits": {')
    write_archive(tiny_model(), folder.archive / "best.keras", {"epoch": 2})
    assert main(["share", str(folder.path), "hf://me/pets"]) == 1
    said = capsys.readouterr().err
    assert f"{name}.json' was not written by a run, or is damaged" in said
    assert "me/pets" not in hub.repositories


def test_a_card_with_words_is_kept():
    front = "---\nlicense: mit\n---\n"
    assert is_ours_to_write("") and is_ours_to_write(front)
    assert is_ours_to_write(front + GENERATED)
    assert not is_ours_to_write(f"{front}My cats\n\n---\n")
    assert not is_ours_to_write("My cats\n\n---\n")


def test_the_card_says_what_was_measured():
    info = {"config": {"image_size": [64, 64]}, "class_names": ["cat", "dog"]}
    splits = {"train": {"images": 8, "boxes": 9}}
    card = model_card(
        info,
        "me/cats",
        data={"name": "pets", "splits": splits},
        numbers={"split": "test", "AP": 0.25, "APs": -1, "AP/cat": 0.5},
    )
    front = yaml.safe_load(card.split("---")[1])
    assert "license" not in front and "gave no licence" in card
    (result,) = front["model-index"][0]["results"]
    assert [(m["type"], m["value"]) for m in result["metrics"]] == [("AP", 0.25)]
    assert result["dataset"]["split"] == "test" and GENERATED in card
    assert "| train | 8 | 9 |" in card and "cat, dog" in card


@pytest.mark.parametrize("address", ["hf://pets", "hf://me/", "hf://"])
def test_an_address_has_owner_and_name(address):
    with pytest.raises(ValueError, match="hf://owner/name"):
        parse_hub_address(address)
    assert parse_hub_address("hf://me/pets@a%2Fb/c/d").revision == "a/b"


@needs_library
def test_a_dataset_of_the_hub_is_loaded(hub, tmp_path):
    image = save_image(tmp_path / "a.png").read_bytes()
    row = {"file_name": "a.png", "objects": {"bbox": [[5, 2, 20, 10]], "label": ["a"]}}
    files = {"metadata.jsonl": json.dumps(row).encode(), "a.png": image}
    hub.repositories["datasets/me/pets"] = {f"train/{k}": v for k, v in files.items()}
    dataset = load("hf://datasets/me/pets")
    assert dataset.class_names == ("a",)
    assert dataset[0]["image"].shape == (20, 40, 3)
    assert dataset[0]["boxes"].tolist() == [[2, 5, 12, 25]]
    hub.repositories["datasets/me/flat"] = files  # all at the root of the repository
    for address in ("hf://datasets/me/flat", "hf://datasets/me/flat/metadata.jsonl"):
        assert load(address).class_names == ("a",)
    with pytest.raises(FileNotFoundError, match="'hf://datasets/me/gone' cannot be op"):
        load("hf://datasets/me/gone")
    where = parse_hub_address("hf://datasets/me/pets@v1/train/a.png")
    assert where == ("me/pets", "v1", "train/a.png", "dataset")
    assert parse_hub_address("hf://datasets/pets").repository == "datasets/pets"
