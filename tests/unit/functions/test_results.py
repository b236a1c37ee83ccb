"""A function's result as JSON, or where it fails."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import pipo
from pipo import payload
from pipo.functions.helper.results import Unfit, as_json


def ring() -> list[Any]:
    made: list[Any] = [1]
    made.append({"again": made})
    return made


def deep(levels: int) -> Any:
    made: Any = 1
    for _ in range(levels):
        made = [made]
    return made


FIT = [
    ({"a": (1, 2.5, None, True), "é": "\U0001f600"}, '{"a":[1,2.5,null,true],"é":"\U0001f600"}'),
    (10**400, "1" + "0" * 400),
    (pipo.NULL, "null"),
    ({"a": [pipo.NULL]}, '{"a":[null]}'),
    ({1: "a", None: 2}, '{"1":"a","null":2}'),
    ("\x00", '"\\u0000"'),
    (deep(512), "[" * 512 + "1" + "]" * 512),
]


@pytest.mark.parametrize(("result", "text"), FIT, ids=range(len(FIT)))
def test_what_json_holds(result: Any, text: str) -> None:
    raw = as_json(result)
    assert raw.decode() == text
    payload.decode(raw)


UNFIT = [
    ({"a": [1, {"b c": float("nan")}]}, 'data.a[1]["b c"] is nan'),
    ([float("-inf")], "data[0] is -inf"),
    ({"a": {1}}, "data.a is a set"),
    (object(), "data is a object"),
    (b"raw", "data is a bytes"),
    ({"x": "half \ud83d"}, "data.x holds half of a surrogate pair"),
    ({"half \ud83d": 1}, "data has the key 'half \\ud83d', with half of a surrogate pair"),
    ({(1, 2): 3}, "data has a key that is a tuple"),
    (10**5000, "data is an integer of more than 4300 digits"),
    (ring(), "data[1].again holds itself"),
    (deep(513), f"data{'[0]' * 65}[… lies more than 512 levels deep"),
    (deep(100_000), f"data{'[0]' * 65}[… lies more than 512 levels deep"),
    ([deep(10), {1, 2}], "data[1] is a set"),
]


# By number: a number in it has more digits than an id may have.
@pytest.mark.parametrize(("result", "fault"), UNFIT, ids=range(len(UNFIT)))
def test_where_json_fails(result: Any, fault: str) -> None:
    with pytest.raises(Unfit) as caught:
        as_json(result)
    assert str(caught.value) == fault


def test_null_is_one_and_false() -> None:
    assert copy.deepcopy(pipo.NULL) is pipo.NULL
    assert pickle.loads(pickle.dumps(pipo.NULL)) is pipo.NULL
    assert not pipo.NULL
    assert repr(pipo.NULL) == "pipo.NULL"
