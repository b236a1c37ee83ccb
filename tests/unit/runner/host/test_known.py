"""Which file a known pipeline came from."""

import pytest

from pipo.errors import InvalidState, NotFound
from pipo.home import Home, desired
from pipo.home.desired import Desired
from pipo_runner.host.known import known_file


def test_the_file_it_was_started_from_last(home: Home) -> None:
    desired.write(home.pipeline("signups"), Desired("stopped", "/w/s.pipo"))
    assert known_file(home, "signups") == "/w/s.pipo"


def test_an_unknown_name_gets_a_suggestion(home: Home) -> None:
    home.pipeline("signups").ensure()
    with pytest.raises(NotFound, match="no pipeline named 'signup'") as caught:
        known_file(home, "signup")
    assert caught.value.hint == "did you mean signups?"
    with pytest.raises(NotFound):
        known_file(home, "../etc")


def test_a_pipeline_of_which_only_the_folder_is_left(home: Home) -> None:
    home.pipeline("p").ensure()
    with pytest.raises(InvalidState, match="nothing says which file p was started from"):
        known_file(home, "p")
