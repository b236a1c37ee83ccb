"""The chain in examples/, run by the commands that stand on top of its two files."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.stack import PIPO, ROOT, Stack, query, wait_for

pytestmark = pytest.mark.slow

EXAMPLES = ROOT / "examples"
PAIR = ("signup-intake", "signup-store")
RUN = "pipo run examples\n"


def commands(name: str) -> str:
    """The shell commands in the comment on top of an example, but for the one that starts it."""
    head = (EXAMPLES / f"{name}.pipo").read_text().partition("\npipo: 1\n")[0]
    text = "".join(f"{line[4:]}\n" for line in head.splitlines() if line.startswith("#   "))
    assert text.startswith(RUN)
    return text.removeprefix(RUN)


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    made = Stack(tmp_path)
    for name in PAIR:
        shutil.copy2(EXAMPLES / f"{name}.pipo", made.workspace)
    try:
        yield made.start()
        assert made.stop() == 0
    finally:
        made.kill_all()


def run(stack: Stack, text: str) -> str:
    """What commands print that a reader types, on this stack's port."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text.replace(":8787", f":{stack.port}")],
        cwd=stack.workspace,
        env={
            **stack.env,
            "PATH": f"{Path(sys.executable).parent}:{stack.env['PATH']}",
            "PIPO_URL": stack.url(""),
        },
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.seed("C005")
def test_a_form_an_import_and_a_push_each_make_a_row(stack: Stack) -> None:
    printed = run(stack, commands("signup-intake"))
    assert printed.count('"accepted"') == 3, printed
    run(stack, commands("signup-store"))
    # The chain delivers three, and what was pushed is the receiver's alone.
    wait_for(lambda: stack.stats("signup-intake").get("delivered") == 3, what=stack.output)
    wait_for(lambda: stack.stats("signup-store").get("delivered") == 4, what=stack.output)
    rows = query(
        stack.workspace / "data/signup-store.db", "SELECT email, name, via FROM signups ORDER BY 1"
    )
    assert rows == [
        ["ada@example.com", "Ada", "form"],
        ["bo@example.com", "Bo", "nightly"],
        ["cy@example.com", "Cy", "nightly"],
        ["di@example.com", "Di", "manual"],
    ]
    for name in PAIR:
        stats = stack.settle(name)
        assert (stats["dead_lettered"], stats["rejected"]) == (0, 0)


@pytest.mark.seed("C013", "C014")
def test_a_check_of_the_examples_compares_both_ends(tmp_path: Path) -> None:
    def check(*paths: Path) -> subprocess.CompletedProcess[str]:
        words = ["check", *map(str, paths)]
        return subprocess.run([*PIPO, *words], capture_output=True, text=True, timeout=60)

    whole = check(EXAMPLES)
    assert whole.returncode == 0, whole.stdout
    for file in EXAMPLES.glob("*.pipo"):
        assert f"{file.name}  ok" in whole.stdout
    # That they fit was looked at: a receiver that lists another sender is told of.
    for name in PAIR:
        text = (EXAMPLES / f"{name}.pipo").read_text()
        (tmp_path / f"{name}.pipo").write_text(text.replace("from: [signup-intake]", "from: [x]"))
    apart = check(tmp_path)
    assert "P064" in apart.stdout
    assert "`signup-store` takes no packets from `signup-intake`" in apart.stdout
    alone = check(tmp_path / "signup-intake.pipo")
    assert (alone.returncode, "P064" in alone.stdout) == (0, False)
