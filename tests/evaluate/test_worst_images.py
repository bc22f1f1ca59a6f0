"""Which images a detector gets most wrong, by hand."""

from support.image_results import image_result

from effdet_keras.evaluate.error_kinds import ImageErrors, worst_images

BOX, FAR = (0, 0, 10, 10), (50, 50, 60, 60)


def test_the_worst_image_comes_first():
    images = [
        image_result([(0, *BOX)], [(0, 0.9, *BOX)], image_id=1),
        image_result([(0, *BOX)], [(0, 0.9, *BOX), (0, 0.75, *FAR)], image_id=2),
        image_result(
            [(0, *BOX), (1, *FAR)], [(0, 0.9, *BOX), (0, 0.5, *FAR)], image_id=3
        ),
        image_result([(0, *BOX)], image_id=4),
        image_result(image_id=5),
    ]
    worst = worst_images(images)
    assert worst[0] == ImageErrors(
        image_id=3, name="3.jpg", badness=1.5, num_found=1, num_missed=1, num_false=1
    )
    # Equal ones stay in the order of the images.
    order = [(4, 1.0), (2, 0.75), (1, 0.0), (5, 0.0)]
    assert [(x.image_id, x.badness) for x in worst[1:]] == order


def test_what_people_do_not_see_does_not_count():
    image = image_result([(0, *BOX)], [(0, 0.4, *BOX), (0, 0.3, *FAR)])
    [seen] = worst_images([image], min_score=0.35)
    assert (seen.badness, seen.num_found, seen.num_false) == (0, 1, 0)
    [seen] = worst_images([image])
    assert (seen.badness, seen.num_missed, seen.num_false) == (1, 1, 0)


def test_crowds_are_not_missed_and_what_lies_in_them_is_not_false():
    truth = [(0, *BOX), (0, 40, 40, 80, 80)]
    found = [(0, 0.9, *BOX), (0, 0.8, *FAR)]
    [image] = worst_images([image_result(truth, found, crowds=[False, True])])
    assert (image.badness, image.num_found, image.num_false) == (0, 1, 0)
