"""The text format of protocol buffers, without a schema, and its fields by type."""

import pytest

from effdet_keras._internal import proto_text
from effdet_keras.extras.tfod.fields import Fields


def parse(text):
    return proto_text.parse(text, Fields)


TEXT = r"""
# a comment
name: "it's \"one\"" 'and two'  flags: [true, False]; rate: 1e-3, half: .5f
inner { number: 0x10 sizes: 1 sizes: [2, 3] } inner < number: 7 >
kind: SOME_ENUM  list: [ { a: 1 }, { a: 2 } ]  empty { }
"""


def test_all_that_the_format_has():
    message = parse(TEXT)
    assert message.get("name", "") == 'it\'s "one"and two'
    assert message.all("flags", str) == ["true", "False"]
    assert parse("names: ['a', \"b\"]").all("names", str) == ["a", "b"]
    assert message.get("flags", True) is False
    assert (message.get("rate", 0.0), message.get("half", 0.0)) == (0.001, 0.5)
    first, second = message.all("inner", Fields)
    assert (first.get("number", 0), second.get("number", 0)) == (16, 7)
    assert first.all("sizes", float) == [1.0, 2.0, 3.0]
    assert message.message("inner") is second  # the last one counts
    assert message.get("kind", "") == "SOME_ENUM"
    assert [m.get("a", 0) for m in message.all("list", Fields)] == [1, 2]
    assert message.has("empty") and not message.has("full")
    assert message.message("full.of").path == "full.of"
    assert (message.get("inner.number", 0), message.get("full.of.it", 2)) == (7, 2)


def test_what_nobody_asked_for_is_left():
    message = parse("a: 1 b { c: 2 d: 3 e { } } f { g: 4 }")
    assert message.get("a", 0) == 1 and message.message("b").get("c", 0) == 2
    assert list(message.left()) == [("b.d", "3"), ("b.e", "{}"), ("f.g", "4")]
    message.message("b").take_all()
    assert list(message.left()) == [("f.g", "4")]


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda m: m.get("x", 0), "`x` must be a whole number. Received: 'word'"),
        (lambda m: m.get("y", 0.0), "`y` must be a number. Received: 'inf'"),
        (lambda m: m.get("z", ""), "`z` must be text. Received: a message"),
    ],
    ids=range(3),
)
def test_another_type_than_expected_is_told(read, expected):
    with pytest.raises(ValueError, match=expected):
        read(parse("x: word y: inf z { }"))


@pytest.mark.parametrize("text", ["a: 'b", "a {", "a b", "{ a: 1 }"])
def test_another_format_is_refused(text):
    with pytest.raises(ValueError, match="xpected|end"):
        parse(text)
