"""`image_results`: what `evaluate` counts, image by image, for every detector."""

import dataclasses

import numpy as np
import pytest
from support.tiny import lively_model

import effdet_keras as ek
from effdet_keras.detect.evaluate import evaluate, image_results
from effdet_keras.evaluate.evaluation import analyze_results

NAMES = ("cat", "dog", "bird")


@pytest.fixture(scope="module")
def dataset():
    """Images of four sizes; ids and areas that no rule would make, and a crowd."""
    rng = np.random.default_rng(2)
    sizes = [(64, 64), (40, 90), (100, 50), (33, 33)]
    images = [rng.integers(0, 255, (*size, 3), "uint8") for size in sizes]
    boxes = [[[4, 4, 30, 30], [8, 10, 20, 33]], [[2.5, 7, 38, 80]], [], [[0, 0, 9, 9]]]
    labels = [[0, 2], [1], [], [0]]
    ids, areas = (70, 8, 9, 100), ([500.0, 501.0], [502.0], [], [503.0])
    records = [
        dataclasses.replace(
            record,
            image_id=image_id,
            is_crowd=np.arange(len(of_image)) == 1,
            area=np.array(of_image),
        )
        for record, image_id, of_image in zip(
            ek.data.from_arrays(images, boxes, labels, NAMES).records, ids, areas
        )
    ]
    return ek.data.DetectionDataset(records, NAMES, (10, 20, 30))


@pytest.fixture(scope="module")
def model():
    return lively_model()


@pytest.fixture(scope="module")
def results(model, dataset):
    return image_results(model, dataset, batch_size=3, verbose=False)


def test_the_numbers_are_those_of_the_evaluation(model, dataset, results):
    numbers = evaluate(model, dataset, batch_size=3, verbose=False)
    assert -1 < numbers["AP50"] < 1 and any(len(r.scores) for r in results)
    assert analyze_results(results, NAMES).coco == pytest.approx(numbers, abs=1e-12)


def test_ids_sizes_crowds_and_areas_are_those_of_the_dataset(dataset, results):
    assert [r.image_id for r in results] == [70, 8, 9, 100]
    assert [tuple(r.size) for r in results] == [(64, 64), (40, 90), (100, 50), (33, 33)]
    assert results[0].truth_labels.tolist() == [0, 2]
    assert results[0].truth_is_crowd.tolist() == [False, True]
    assert results[0].truth_areas.tolist() == [500.0, 501.0]
    np.testing.assert_allclose(results[1].truth_boxes, [[2.5, 7, 38, 80]])
