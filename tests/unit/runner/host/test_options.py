"""Edge 321 to 323, 446, 447: how long each word of a start holds."""

from typing import Any

import pytest

from pipo_runner.host.options import Asked, of_restart, of_start

KEPT = {"ttl": "2h", "listen": 8790, "detached": True}


@pytest.mark.parametrize(
    ("asked", "kept", "expected"),
    [
        (Asked(), {}, {}),
        (Asked("30m", 8790, True), {}, {"ttl": "30m", "listen": 8790, "detached": True}),
        (Asked(), KEPT, {"listen": 8790}),
        (Asked(listen=8791), KEPT, {"listen": 8791}),
        (Asked(detached=False), KEPT, {"listen": 8790}),
    ],
)
def test_a_start_keeps_the_port_and_says_the_rest_anew(
    asked: Asked, kept: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert of_start(asked, kept, detached=False, has_port=True) == expected


def test_what_counts_unsaid_is_the_engines() -> None:
    assert of_start(Asked(), {}, detached=True, has_port=True) == {"detached": True}
    assert of_start(Asked(detached=False), {}, detached=True, has_port=True) == {}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Asked(), {"listen": 8790, "detached": True}),
        (Asked(ttl="1h"), {"ttl": "1h", "listen": 8790, "detached": True}),
        (Asked(listen=8791), {"listen": 8791, "detached": True}),
    ],
)
def test_a_restart_keeps_what_it_outlives_too(asked: Asked, expected: dict[str, Any]) -> None:
    assert of_restart(asked, KEPT, has_port=True) == expected


def test_a_port_that_no_input_serves_any_more_is_not_kept() -> None:
    assert of_start(Asked(), KEPT, detached=False, has_port=False) == {}
    assert of_restart(Asked(), KEPT, has_port=False) == {"detached": True}
