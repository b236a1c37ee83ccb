"""Which pipeline was probably meant."""

from pathlib import Path

import pytest

from pipo.home import Home, desired
from pipo.home.desired import Desired
from pipo.home.nearest import nearest

NAMES = ("signup-store", "signups-to-sqlite", "orders-by-size", "orders-by-day", "people")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.ensure()
    return made


@pytest.fixture
def known(home: Home) -> Home:
    for name in NAMES:
        home.pipeline(name).ensure()
        desired.write(home.pipeline(name), Desired("stopped", f"/w/{name}.pipo"))
    desired.write(home.pipeline("signups-to-sqlite"), Desired("stopped", "/w/form.pipo"))
    return home


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("form", "signups-to-sqlite"),
        ("form.pipo", "signups-to-sqlite"),
        ("signups", "signups-to-sqlite"),
        ("poeple", "people"),
        ("orders", "orders-by-day"),
        ("signup-stor", "signup-store"),
        ("", None),
        ("../etc", None),
        ("zzz", None),
    ],
)
def test_what_was_meant(known: Home, given: str, meant: str | None) -> None:
    assert nearest(known, given, NAMES) == meant


def test_a_pipeline_of_which_only_the_folder_is_left_has_no_file(home: Home) -> None:
    home.pipeline("people").ensure()
    assert nearest(home, "peple", ["people"]) == "people"
