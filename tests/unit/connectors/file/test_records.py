"""Record bytes: compact, exact, surrogates kept as escapes (decision 46)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipo.connectors.contract import Refused
from pipo.connectors.file.records import json_bytes, line


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"n": 8202522731445525542, "s": "8202522731445525542"}, None),
        ({"n": 18446744073709551615, "f": 1.0, "g": 1e300}, None),
        (["ü", "\U0001f600", "\u2028", "\x00", "a\nb"], None),
        (None, None),
        ("hi \ud83d", r'"hi \ud83d"'),
        ({"na\ud83dme": ["\udc00"]}, r'{"na\ud83dme":["\udc00"]}'),
    ],
)
def test_a_line_is_one_line_and_reads_back(data: Any, text: str | None) -> None:
    made = line("k1", data)
    assert made.count(b"\n") == 1
    assert made.endswith(b"\n")
    assert json.loads(made) == {"packet_id": "k1", "data": data}
    if text is not None:
        assert json_bytes(data) == text.encode()


@pytest.mark.parametrize("data", [object(), {"a": float("nan"), "b": "\ud83d"}])
def test_what_json_cannot_hold_is_refused(data: Any) -> None:
    with pytest.raises(Refused, match="data is not JSON"):
        line("k1", data)
