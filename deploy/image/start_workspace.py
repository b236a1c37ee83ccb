"""What the runner's container begins with: takes up new pipelines, then becomes the runner host.

    start_workspace.py pipo-runner [ARGUMENT...]

Every `*.pipo` file that lies directly in the workspace, and whose pipeline this home has never
seen, is marked to run; the runner host starts what is marked. So `docker-compose up` on fresh
volumes runs the examples, a file that is added later starts with the runner's next start, and a
pipeline that somebody stopped stays stopped. A file that fails its check is reported and left
out. Then this process becomes the command by exec: it, and no script, is PID 1.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipo.connectors import registry
from pipo.errors import Finding, InvalidPipeline, PipoError
from pipo.home import Home, desired, home_from
from pipo.lang.check import Source, parse


def say(text: str) -> None:
    print(f"start_workspace: {text}", file=sys.stderr, flush=True)


def shown(file: Path, finding: Finding) -> str:
    return f"{file}:{finding.line}:{finding.col}  {finding.severity}  {finding.code}  {finding.message}"


def take_up(home: Home, file: Path, manifests: Mapping[str, Any]) -> bool:
    """Marks the file's pipeline to run; False when the home knows a pipeline of its name.

    Durable: on return the mark survives a power cut.
    Raises: InvalidPipeline, if the file fails its check; PipoError, if the home cannot be used;
        OSError or UnicodeDecodeError, if the file cannot be read.
    """
    pipeline = parse(Source(file.read_text("utf-8"), str(file)), manifests)
    place = home.pipeline(pipeline.name)
    if place.folder.exists():
        return False
    desired.write(place, desired.Desired(desired="running", file=str(file)))
    return True


def take_up_all(home: Home, workspace: Path, manifests: Mapping[str, Any]) -> None:
    """Takes up each file of the workspace; one that cannot be is reported and costs no other."""
    for file in sorted(workspace.glob("*.pipo")):
        try:
            if take_up(home, file, manifests):
                say(f"{file} will run")
        except InvalidPipeline as error:
            say(f"{file} is left out, it fails its check:")
            for finding in error.findings:
                print(shown(file, finding), file=sys.stderr)
        except (PipoError, OSError, UnicodeDecodeError) as error:
            say(f"{file} is left out: {error}")


def main(command: list[str]) -> int:
    """Does not return when all goes well.

    Returns: 2 without a command, 127 when there is no such command.
    """
    if not command:
        say("name the command to become, as in: start_workspace.py pipo-runner")
        return 2
    home = home_from(None)
    try:
        home.ensure()
    except PipoError:
        # The service meets the same fault; its words and its exit status are the ones that count.
        pass
    else:
        take_up_all(home, Path(os.environ.get("PIPO_WORKSPACE", ".")), registry.manifests())
    try:
        os.execvp(command[0], command)
    except OSError as error:
        say(f"cannot run {command[0]}: {error.strerror}")
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
