"""Statuses and pauses (edges 196, 197; decision 41; R23)."""

from __future__ import annotations

from typing import Any

import pytest

from pipo.connectors.contract import Refused
from pipo.connectors.http.statuses import accepted, pause_asked_s

NOW_MS = 1_792_000_000_900


@pytest.mark.parametrize(
    ("success", "statuses"),
    [
        (201, {201}),
        ("201", {201}),
        ("2xx", {200, 201, 299}),
        ("200-204", {200, 204}),
        ([201, "409", "3xx", "500-502"], {201, 409, 300, 399, 500, 502}),
        ([], {200, 299}),
    ],
)
def test_what_counts_as_success(success: Any, statuses: set[int]) -> None:
    tried = {200, 201, 204, 205, 299, 300, 399, 400, 409, 500, 502, 503}
    expected = {status for status in tried if status in statuses or _in(success, status)}
    assert {status for status in tried if accepted(success, status)} == expected
    assert statuses <= expected


def _in(success: Any, status: int) -> bool:
    """The members of a class or range that the table does not spell out."""
    whole = {"2xx": range(200, 300), "200-204": range(200, 205), "3xx": range(300, 400)}
    forms = success if isinstance(success, list) else [success]
    return any(status in whole.get(form, ()) for form in forms or ["2xx"])


@pytest.mark.parametrize("form", ["ok", "6xx", "20", True, None, {"a": 1}, "200-", 20])
def test_an_unknown_form_is_refused_whatever_else_matches(form: Any) -> None:
    with pytest.raises(Refused, match="which is no status"):
        accepted([200, form], 200)


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("86400", 86400.0),
        ("9" * 400, 1e9),
        ("soon", None),
        ("-5", None),
        ("", None),
        ("1e3", None),
        ("Wed, 99 Oct 2026 21:46:40 GMT", None),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_a_pause_in_seconds(asked: str, seconds: float | None, status: int) -> None:
    assert pause_asked_s(status, {"Retry-After": asked}, NOW_MS) == seconds


def test_only_429_and_503_ask_for_a_pause() -> None:
    assert pause_asked_s(500, {"Retry-After": "7"}, NOW_MS) is None
    assert pause_asked_s(429, {}, NOW_MS) is None


def test_a_date_counts_from_the_answers_own_date() -> None:
    headers = {
        "Retry-After": "Wed, 14 Oct 2020 10:00:07 GMT",
        "Date": "Wed, 14 Oct 2020 10:00:00 GMT",
    }
    assert pause_asked_s(503, headers, NOW_MS) == 7.0
    past = {"Retry-After": headers["Date"], "Date": headers["Retry-After"]}
    assert pause_asked_s(503, past, NOW_MS) is None


def test_without_a_date_the_whole_second_counts() -> None:
    """A date is cut to its second; so is now, lest the sender comes back too early."""
    from email.utils import formatdate

    seven_on = formatdate(NOW_MS // 1000 + 7, usegmt=True)
    assert pause_asked_s(503, {"Retry-After": seven_on}, NOW_MS) == 7.0
