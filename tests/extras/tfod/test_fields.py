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
    assert message.text("name", "") == 'it\'s "one"and two'
    assert message.texts("flags") == ["true", "False"]
    assert parse("names: ['a', \"b\"]").texts("names") == ["a", "b"]
    assert message.switch("flags", True) is False
    assert (message.number("rate", 0.0), message.number("half", 0.0)) == (0.001, 0.5)
    first, second = message.messages("inner")
    assert (first.whole("number", 0), second.whole("number", 0)) == (16, 7)
    assert first.numbers("sizes") == [1.0, 2.0, 3.0]
    assert message.message("inner") is second  # the last one counts
    assert message.text("kind", "") == "SOME_ENUM"
    assert [m.whole("a", 0) for m in message.messages("list")] == [1, 2]
    assert message.has("empty") and not message.has("full")
    assert message.message("full").path == "full"


def test_what_nobody_asked_for_is_left():
    message = parse("a: 1 b { c: 2 d: 3 e { } } f { g: 4 }")
    assert message.whole("a", 0) == 1 and message.message("b").whole("c", 0) == 2
    assert list(message.left()) == [("b.d", "3"), ("b.e", "{}"), ("f.g", "4")]
    message.message("b").take_all()
    assert list(message.left()) == [("f.g", "4")]


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (lambda m: m.whole("x", 0), "`x` must be a whole number. Received: 'word'"),
        (lambda m: m.number("x", 0), "`x` must be a number"),
        (lambda m: m.number("y", 0), "`y` must be a number. Received: 'inf'"),
        (lambda m: m.switch("x", True), "`x` must be true or false"),
        (lambda m: m.message("x"), "`x` must be a message. Received: text"),
        (lambda m: m.text("z", ""), "`z` must be text. Received: a message"),
    ],
    ids=range(6),
)
def test_another_type_than_expected_is_told(read, expected):
    with pytest.raises(ValueError, match=expected):
        read(parse("x: word y: inf z { }"))


@pytest.mark.parametrize(
    "text", ["a: 'b", "a {", "a: [1, 2", "a b", "a:", ": 1", "a: }", "{ a: 1 }"]
)
def test_another_format_is_refused(text):
    with pytest.raises(ValueError, match="expected|end"):
        parse(text)
