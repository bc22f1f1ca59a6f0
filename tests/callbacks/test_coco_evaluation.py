"""COCO evaluation in `fit`: the numbers, the ids, the weights, the logs."""

import keras
import numpy as np
import pytest
from support.image_results import NOTHING, postprocessed
from support.tiny import tiny_model

from effdet_keras.callbacks import COCOEvaluation
from effdet_keras.data import from_arrays
from effdet_keras.evaluate.coco import METRIC_NAMES, COCOMetric

pytestmark = pytest.mark.tensorflow


class Oracle:
    """Stands for a model: it finds what is in the truth, in its own pixels."""

    averages = None
    class_names = ("cat", "dog", "bird")
    category_ids = None

    def __init__(self, dataset, miss=(), **attributes):
        self.config = tiny_model.config
        self.dataset, self.miss = dataset, miss
        self.batch_sizes, self.seen = [], 0
        self.__dict__.update(attributes)

    def predict_on_batch(self, images):
        self.batch_sizes.append(len(images))
        found = []
        for _ in images:
            known = self.seen < len(self.dataset) and self.seen not in self.miss
            found.append(self._truth(self.dataset[self.seen]) if known else NOTHING)
            self.seen += 1
        return postprocessed(found, rows=5)

    def _truth(self, example):
        scale, labels = 64 / max(example["image"].shape[:2]), example["labels"]
        return example["boxes"] * scale, [0.9] * len(labels), labels


@pytest.fixture(scope="module", autouse=True)
def tiny_config(shared_model):
    tiny_model.config = shared_model.config
    yield
    del tiny_model.config


def quiet(dataset, **arguments):
    return COCOEvaluation(dataset, **{"verbose": False, **arguments})


@pytest.mark.smoke
def test_a_detector_that_finds_everything_has_ap_one(valid):
    oracle = Oracle(valid)
    numbers = quiet(valid, batch_size=3).evaluate(oracle)
    assert numbers["AP"] == pytest.approx(1.0)
    for name in ("cat", "dog", "bird"):
        assert numbers[f"AP/{name}"] == pytest.approx(1.0)
    assert set(METRIC_NAMES) < set(numbers)
    assert oracle.batch_sizes == [3, 3]  # all of one size


def test_the_numbers_are_those_of_detecting_image_by_image(model, valid):
    for average in model.averages.variables:
        average.assign(average * 0.5 + 0.01)
    numbers = quiet(valid, batch_size=3).evaluate(model)
    metric = COCOMetric(valid.to_coco())
    with model.averages.swapped():
        for example in valid:
            found = model.detect(example["image"], score_threshold=0.0)
            metric.update(
                example["image_id"],
                found.boxes,
                found.scores,
                np.array(valid.category_ids)[found.labels],
            )
    expected = metric.result()
    assert numbers.keys() == expected.keys()
    for name, value in expected.items():
        # Batches of other sizes round otherwise; a tie may fall the other way.
        assert numbers[name] == pytest.approx(value, abs=1e-3), name


def test_the_screen_shows_which_weights_the_progress_and_a_table(model, valid, capsys):
    COCOEvaluation(valid, batch_size=2).evaluate(model)
    printed = capsys.readouterr().out
    assert "5 images with the moving averages of the weights" in printed
    assert "2/5" in printed and "5/5" in printed
    assert "AP50" in printed and "AP/bird" in printed
    assert "DONE" not in printed  # pycocotools' own talk
    COCOEvaluation(valid).evaluate(Oracle(valid))
    assert "with the weights as they are" in capsys.readouterr().out
    quiet(valid).evaluate(Oracle(valid))
    assert capsys.readouterr().out == ""


def test_in_fit_the_table_comes_once_when_it_ends(valid, capsys):
    evaluation = COCOEvaluation(valid, every=1)
    evaluation.set_params({"epochs": 2})
    for epoch in range(2):
        evaluation.set_model(Oracle(valid))
        evaluation.on_epoch_end(epoch, {})
    assert capsys.readouterr().out == ""
    evaluation.on_train_end()
    assert "AP50 " in capsys.readouterr().out
    evaluation.on_train_end()
    assert capsys.readouterr().out == ""


@pytest.fixture(scope="module")
def many():
    """Twelve images with an object of each class."""
    boxes = [[[2, 2, 26, 26], [2, 34, 26, 62], [34, 2, 62, 62]]] * 12
    images = [np.zeros((64, 64, 3), "uint8")] * 12
    return from_arrays(images, boxes, [[0, 1, 2]] * 12, ["cat", "dog", "bird"])


def explaining(dataset):
    return COCOEvaluation(dataset, batch_size=4)  # an `Oracle` counts rows of padding


def shuffled(examples):
    """The examples with the classes of their objects exchanged."""
    random = np.random.default_rng(4)
    for example in examples:
        yield {**example, "labels": random.permutation(example["labels"])}


def said_by_training(evaluation, examples, capsys, *, epochs=1, steps=0, learning=None):
    """What an evaluation of a detector that finds these objects prints at each end."""
    printed = []
    evaluation.set_params({"epochs": epochs})
    optimizer = keras.optimizers.SGD()
    optimizer.iterations.assign(steps)
    oracle = Oracle(list(examples) * epochs, optimizer=optimizer)
    oracle.training_dataset = learning
    evaluation.set_model(oracle)
    evaluation.on_train_begin()
    for epoch in range(epochs):
        evaluation.on_epoch_end(epoch, {})
        printed.append(capsys.readouterr().out)
    evaluation.on_train_end()
    return [*printed, capsys.readouterr().out]


def test_classes_at_chance_are_explained_once(many, capsys):
    wrong = list(shuffled(many))
    assert (
        "classes are near chance"
        in said_by_training(explaining(many), wrong, capsys)[1]
    )
    assert "chance" not in said_by_training(explaining(many), many, capsys)[1]
    assert said_by_training(quiet(many, batch_size=4), wrong, capsys) == ["", ""]
    for steps, place in ((999, 3), (1000, 0)):  # the end, or the first of three epochs
        options = {"epochs": 3, "steps": steps}
        said = said_by_training(explaining(many), wrong, capsys, **options)
        assert [k for k in range(4) if "near chance" in said[k]] == [place]
        assert said[place].count("near chance") == 1


def test_the_images_of_the_training_tell_too_few_steps_from_too_few_images(
    many, capsys
):
    nothing = [{**x, "boxes": x["boxes"][:0], "labels": x["labels"][:0]} for x in many]
    for learned, expected in (
        (many, "needs more training images"),
        (nothing, "not even learned its training images"),
    ):
        examples = [*nothing, *learned]
        said = said_by_training(explaining(many), examples, capsys, learning=many)
        assert expected in said[1]


def test_fit_gives_its_dataset_and_says_what_to_expect_of_it(model, many, capsys):
    evaluation = COCOEvaluation(many[:2])
    model.fit(many[:4], batch_size=2, epochs=1, callbacks=[evaluation])
    said = capsys.readouterr().out
    assert model.training_dataset is None  # after `fit`
    assert said.count("Only 4 images") == said.count("not even learned") == 1
    assert "Fewer than 10 boxes of 'cat' (4)" in said
    model.fit(many[:4], batch_size=2, epochs=1)
    assert "Only 4 images" not in capsys.readouterr().out  # it has begun


def test_fit_gives_the_numbers_of_its_last_weights(model, train, valid):
    history = model.fit(
        *train, batch_size=2, verbose=0, callbacks=[quiet(valid, batch_size=3)]
    )
    numbers = quiet(valid, batch_size=3).evaluate(model)
    assert set(numbers) < set(history.history)
    for name, value in numbers.items():
        assert history.history[name] == [pytest.approx(value, abs=1e-6)]


@pytest.mark.parametrize(
    ("every", "epochs", "expected"),
    [(1, 3, [0, 1, 2]), (2, 5, [1, 3, 4]), (10, 3, [2])],
)
def test_it_runs_every_so_many_epochs_and_after_the_last(
    valid, every, epochs, expected
):
    evaluation, ran = quiet(valid, every=every), []
    evaluation.set_model(Oracle(valid))
    evaluation.set_params({"epochs": epochs})
    evaluation.evaluate = lambda model: ran.append(epoch) or {"AP": 0.5}
    for epoch in range(epochs):
        logs = {}
        evaluation.on_epoch_end(epoch, logs)
        assert logs == ({"AP": 0.5} if epoch in expected else {})
    assert ran == expected


# Labels to category ids.


def ids_seen(model, valid, monkeypatch):
    """The category ids that the metric gets from the oracle's detections."""
    seen = set()
    update = COCOMetric.update

    def spy(self, image_id, boxes, scores, category_ids):
        seen.update(int(i) for i in category_ids)
        update(self, image_id, boxes, scores, category_ids)

    monkeypatch.setattr(COCOMetric, "update", spy)
    quiet(valid).evaluate(model)
    return seen


@pytest.mark.parametrize(
    ("names", "ids"),
    [
        (("cat", "dog", "bird"), None),
        (None, None),
        (None, (5, 7, 9)),
        (("cat", "dog", "bird"), (1, 2, 3)),  # names that agree decide
        (("felix", "dog", "bird"), (8, 7, 9)),  # the ids in common agree in name
    ],
)
def test_labels_become_category_ids(valid, monkeypatch, names, ids):
    oracle = Oracle(valid, class_names=names, category_ids=ids)
    expected = {8, 7, 9} if ids and 8 in ids else {5, 7, 9}
    assert ids_seen(oracle, valid, monkeypatch) == expected


def test_callbacks_before_it_in_the_list_see_its_numbers(valid, train, model, tmp_path):
    best, table = tmp_path / "best.keras", tmp_path / "log.csv"

    class Falling(COCOEvaluation):
        """Finds less and less."""

        ap = 0.5

        def evaluate(self, model):
            self.ap -= 0.1
            return {"AP": self.ap, "AP50": self.ap}

    checkpoint = keras.callbacks.ModelCheckpoint(
        best, monitor="AP", mode="max", save_best_only=True
    )
    stopping = keras.callbacks.EarlyStopping(monitor="AP", mode="max", patience=1)
    log = keras.callbacks.CSVLogger(str(table))
    given = [checkpoint, stopping, log, Falling(valid, verbose=False)]
    history = model.fit(*train, batch_size=4, epochs=5, verbose=0, callbacks=given)
    assert history.epoch == [0, 1]  # stopped where the second was no better
    assert checkpoint.best == pytest.approx(0.4) and best.exists()
    assert "AP50" in table.read_text().splitlines()[0]
    assert model.stop_training is True


@pytest.mark.parametrize("wrong", [{"every": 0}, {"batch_size": 0}])
def test_numbers_that_cannot_be_right_are_refused_before_training(valid, wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        COCOEvaluation(valid, **wrong)
