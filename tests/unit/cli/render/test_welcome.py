"""What `pipo run` prints once it is up."""

from pipo_cli.render.ways import ways
from pipo_cli.render.welcome import to_try, welcome

URL = "http://127.0.0.1:8787"
BEAT = {"name": "heartbeat", "inputs": [{"name": "input", "via": "schedule", "address": ""}]}
PEOPLE = {
    "name": "people-intake",
    "inputs": [{"name": "input", "via": "http", "address": "POST /in/people-intake/people"}],
}
SIGNUPS = {
    "name": "signups-to-sqlite",
    "inputs": [{"name": "input", "via": "http", "address": "POST /in/signups-to-sqlite/signups"}],
}


def test_ways_in() -> None:
    given = [
        {"via": "http", "address": "POST /in/x/a"},
        {"via": "http", "address": "PUT /in/x"},
        {"via": "push", "address": ""},
    ]
    assert [way.shown() for way in ways(given)] == ["POST /in/x/a", "PUT /in/x", "push"]


def test_the_sign_up_comes_first() -> None:
    form = {"name": "signup-intake", "inputs": [{"via": "http", "address": "POST /in/x/form"}]}
    assert to_try(URL, [BEAT, PEOPLE, form, SIGNUPS], "pipo") == [
        "curl -X POST http://127.0.0.1:8787/in/signups-to-sqlite/signups"
        " -H 'content-type: application/json'"
        """ -d '{"name": "Ada", "email": "ada@example.com"}'""",
        "pipo status",
        "pipo inspect signups-to-sqlite <packet_id>",
    ]


def test_other_pipelines_take_data_of_the_readers() -> None:
    assert to_try(URL, [BEAT, PEOPLE], "pipo")[0].endswith(
        """people -H 'content-type: application/json' -d '{"your": "data"}'"""
    )
    by_hand = {"name": "by-hand", "inputs": [{"name": "input", "via": "push", "address": ""}]}
    assert (
        to_try(URL, [BEAT, by_hand], "pipo")[0] == """pipo push by-hand --data '{"your": "data"}'"""
    )


def test_without_a_way_to_send_it_lists_packets() -> None:
    assert to_try(URL, [BEAT], ".venv/bin/pipo")[0] == ".venv/bin/pipo packets heartbeat"


def test_what_would_be_refused_is_not_suggested() -> None:
    rows = {
        "name": "rows",
        "inputs": [{"via": "http", "address": "POST /in/rows/rows", "format": "csv"}],
    }
    signed = {
        "name": "signed",
        "inputs": [
            {"via": "http", "address": "POST /in/signed/hook", "format": "json", "auth": True}
        ],
    }
    assert to_try(URL, [rows, signed], "pipo")[0] == "pipo packets rows"
    assert "/in/people-intake/" in to_try(URL, [rows, signed, PEOPLE], "pipo")[0]


def test_addresses() -> None:
    lines = welcome(
        url=URL, grpc="127.0.0.1:8788", home="/h", pipelines=[BEAT, PEOPLE], pipo="pipo"
    )
    assert lines[:5] == [
        "Pipo is running.",
        "  gateway    http://127.0.0.1:8787  (gRPC 127.0.0.1:8788)",
        "  home       /h",
        "  pipelines  heartbeat      schedule",
        "             people-intake  POST http://127.0.0.1:8787/in/people-intake/people",
    ]
