"""A model goes to a stand-in of the Hugging Face Hub, and comes back."""

import numpy as np
import pytest
import yaml
from support.hub_server import hub_server
from support.tiny import tiny_model

from effdet_keras._internal.hugging_face import parse_hub_address
from effdet_keras._internal.optional_imports import OptionalModule, huggingface_hub
from effdet_keras.cli import main
from effdet_keras.models import EfficientDet
from effdet_keras.predictor import Predictor
from effdet_keras.sharing.card import GENERATED, model_card
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


@needs_library
def test_a_pushed_model_is_pulled_again(hub, capsys):
    model = tiny_model()
    model.push_to_hub("hf://me/pets", license="mit", private=True)
    assert set(hub.repositories["me/pets"]) == {
        *("best.keras", "archive.json", "README.md")
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
    with pytest.raises(ConnectionError, match="cannot be reached"):
        Predictor.load("hf://me/others")


@needs_library
def test_another_model_is_not_overwritten(hub):
    tiny_model().push_to_hub("hf://me/pets")
    before = hub.commit("me/pets")
    tiny_model().push_to_hub("hf://me/pets")  # the same model: another commit
    assert hub.commit("me/pets") != before
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
def test_what_is_wrong_is_told(hub, monkeypatch):
    with pytest.raises(FileNotFoundError, match="no repository 'me/none'.*log in"):
        Predictor.load("hf://me/none")
    hub.gated.add("me/gated")
    with pytest.raises(PermissionError, match="gated.*Ask for access"):
        Predictor.load("hf://me/gated")
    hub.repositories["me/text"] = {"README.md": b"a", "notes.txt": b"b"}
    with pytest.raises(FileNotFoundError, match=r"README.md, notes.txt"):
        Predictor.load("hf://me/text")
    with pytest.raises(ValueError, match=r"holds no weights.*notes.txt"):
        read_weights("hf://me/text", None)
    with pytest.raises(FileNotFoundError, match="no branch, tag or commit 'v9'"):
        Predictor.load("hf://me/text@v9")
    hub.repositories["me/cut"] = {"best.keras": b"0123"}
    hub.damaged = b"abcd"
    with pytest.raises(OSError, match="is damaged: its SHA-256"):
        Predictor.load("hf://me/cut")
    monkeypatch.setenv("HF_TOKEN", "")
    with pytest.raises(PermissionError, match="Log in"):
        tiny_model().push_to_hub("hf://me/new")


@needs_library
def test_the_command_shares_an_archive(hub, tmp_path, capsys):
    path = tmp_path / "pets.keras"
    EfficientDet.save(tiny_model(), path)
    from effdet_keras.weights.archive import write_archive

    write_archive(tiny_model(), path, {"metrics": {"AP": 0.5}})
    assert main(["share", str(path), "hf://me/pets", "--license", "mit"]) == 0
    assert "commit" in capsys.readouterr().out
    card = hub.repositories["me/pets"]["README.md"].decode()
    assert yaml.safe_load(card.split("---")[1])["license"] == "mit"
    assert "| AP | 0.5000 |" in card


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
    assert "license" not in front and "named no licence" in card
    (result,) = front["model-index"][0]["results"]
    assert [(m["type"], m["value"]) for m in result["metrics"]] == [("AP", 0.25)]
    assert result["dataset"]["split"] == "test" and GENERATED in card
    assert "| train | 8 | 9 |" in card and "cat, dog" in card


@pytest.mark.parametrize("address", ["hf://pets", "hf://me/", "hf://"])
def test_an_address_has_owner_and_name(address):
    with pytest.raises(ValueError, match="hf://owner/name"):
        parse_hub_address(address)
    assert parse_hub_address("hf://me/pets@a%2Fb/c/d").revision == "a/b"


def test_without_the_library_the_extra_is_named(monkeypatch):
    absent = OptionalModule("no_such_module", install="effdet-keras[huggingface]")
    assert isinstance(huggingface_hub, OptionalModule)
    monkeypatch.setattr("effdet_keras._internal.hugging_face.huggingface_hub", absent)
    with pytest.raises(ImportError, match=r"hf://me/pets.*effdet-keras\[huggingface\]"):
        Predictor.load("hf://me/pets")
