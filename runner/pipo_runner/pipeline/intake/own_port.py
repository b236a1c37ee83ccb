"""The port of its own that a pipeline's http inputs share: which one, and holding it early."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from pipo.home import Home, ports
from pipo.lang.model import Pipeline


def own_port(
    pipeline: Pipeline, options: Mapping[str, Any], home: Home | None
) -> socket.socket | None:
    """A socket that listens on the port; None where there is none.

    The one of the start (`listen` among the options) comes before that of the file.
    Raises: Conflict, naming the holder of a port that is taken.
    """
    inputs = [entry for entry in pipeline.inputs if entry.via == "http"]
    if not inputs:
        return None
    named = [options.get("listen"), *(entry.settings.get("listen") for entry in inputs)]
    port = next(filter(None, named), None)
    return None if port is None else ports.reserve(port, home)
