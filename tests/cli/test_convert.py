"""`effdet-keras convert`."""

import pytest

from effdet_keras import cli
from effdet_keras.data import load_splits, write_shapes

pytestmark = pytest.mark.tensorflow


def test_convert_writes_another_format_and_says_what(tmp_path, capsys):
    write_shapes(tmp_path / "coco", num_train=3, num_valid=2)
    source, out = str(tmp_path / "coco"), str(tmp_path / "csv")
    options = ["--to", "csv", "--csv-format", "automl"]
    assert cli.main(["convert", source, out, *options]) == 0
    text = capsys.readouterr().out
    assert "is COCO json: splits train, valid" in text
    assert "train: DetectionDataset(3 images" in text
    assert list(load_splits(out)) == ["train", "validation"]
    records = str(tmp_path / "records")
    options = ["--to", "tfrecord", "--split", "validation", "--num-shards", "2"]
    assert cli.main(["convert", out, records, *options]) == 0
    names = {path.name for path in (tmp_path / "records").glob("*.tfrecord")}
    assert names == {f"validation-0000{i}-of-00002.tfrecord" for i in (0, 1)}


def test_convert_tells_errors_in_one_line_or_skips_them(tmp_path, capsys):
    write_shapes(tmp_path / "coco", num_train=3, num_valid=2)
    next((tmp_path / "coco" / "train").iterdir()).unlink()
    arguments = ["convert", str(tmp_path / "coco"), str(tmp_path / "yolo")]
    assert cli.main([*arguments, "--to", "yolo"]) == 1
    assert "1 missing image" in capsys.readouterr().err
    assert not (tmp_path / "yolo").exists()
    assert cli.main([*arguments, "--to", "yolo", "--skip-errors"]) == 0
    said = capsys.readouterr().err
    assert "1 missing image" in said and "UserWarning" not in said
    assert len(list((tmp_path / "yolo" / "images" / "train").iterdir())) == 2
    assert cli.main([*arguments, "--to", "yolo"]) == 1
    assert "never written over" in capsys.readouterr().err
