"""Which files a path means."""

from __future__ import annotations

import pytest

from pipo.connectors.watch.globs import BadGlob, compile_glob


def taken(pattern: str, *names: str, folder: str = "/w") -> list[str]:
    glob = compile_glob(f"/w/{pattern}", folder)
    return [name for name in names if glob.takes(name)]


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("in/*.json", ["a.json", ".json", ".hidden.json"], ["a.json.tmp", "sub/a.json", "a.JSON"]),
        ("in/?.[a-c]", ["x.a", "é.c"], ["xx.a", "x.d", ".a"]),
        ("in/[!.]*", ["a"], [".a"]),
        ("in/[[]x]", ["[x]"], ["x"]),
        ("in/**/*.png", ["a.png", "x/a.png", "x/y/z/a.png"], ["a.jpg", "x/a.png/b"]),
        ("in/**", ["a", "x/a", "x/y/a"], []),
        ("in/**/raw/*", ["raw/a", "x/raw/a", "x/y/raw/a"], ["a", "raw/x/a", "x/a"]),
        ("in/*/a", ["x/a"], ["a", "x/y/a"]),
        ("in/*.{json,cs{v,w}}", ["a.json", "a.csv", "a.csw"], ["a.cs", "a.{json,csv}"]),
        ("in/{a,b/c}/*", ["a/x", "b/c/x"], ["b/x", "x"]),
        ("in/{a}*", ["{a}b"], ["ab"]),
    ],
)
def test_what_is_meant(pattern: str, yes: list[str], no: list[str]) -> None:
    assert taken(pattern, *yes, *no) == yes


def test_a_plain_path_is_a_file_or_a_folder() -> None:
    glob = compile_glob("/w/in", "/w")
    assert (glob.root, glob.plain) == ("/w/in", True)
    assert all(glob.takes(name) for name in ("", "a", "x/.a"))
    assert (glob.path(""), glob.path("x/a")) == ("/w/in", "/w/in/x/a")
    assert (glob.shown(""), glob.shown("x/a")) == ("in", "x/a")


@pytest.mark.parametrize(
    ("path", "folder", "root"),
    [
        ("/w/in/sub/*.txt", "/w", "/w/in/sub"),
        ("/w/in/**/x", "/w", "/w/in"),
        ("/*", "/w", "/"),
        ("/w/*", "/w/deeper", "/w"),
        # The pipeline's own folder is no pattern, whatever it is called.
        ("/w/[old]/in/*", "/w/[old]", "/w/[old]/in"),
        ("/w/[old]/in/*", "/w/[old]/pipelines", "/w/[old]/in"),
        ("/w/[old]/in", "/w/[old]", "/w/[old]/in"),
    ],
)
def test_the_literal_part(path: str, folder: str, root: str) -> None:
    assert compile_glob(path, folder).root == root


def test_only_folders_that_can_hold_matches_are_entered() -> None:
    def entered(pattern: str, *names: str) -> list[bool]:
        glob = compile_glob(f"/w/{pattern}", "/w")
        return [glob.enters(name) for name in names]

    assert entered("in/*.json", "x", "x.json") == [False, False]
    assert entered("in/*/a", "x", "x/y") == [True, False]
    assert entered("in/x*/{a,b/c}", "x1", "y", "x1/b", "x1/a") == [True, False, True, False]
    assert entered("in/**/a", "x", "x/y") == [True, True]
    assert entered("in", "x", "x/y") == [True, True]


def test_too_many_alternatives() -> None:
    with pytest.raises(BadGlob, match="more than 256 alternatives"):
        compile_glob("/w/" + "{a,b}" * 9, "/w")


def test_a_hostile_name_takes_no_time() -> None:
    assert taken("in/" + "*a" * 12 + "b", "a" * 255) == []
