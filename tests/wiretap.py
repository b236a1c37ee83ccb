"""Counts the messages that come to pipelines of a stack, whatever sends them.

    tap = Wiretap(folder)
    stack = Stack(folder, env=tap.env)
    ...
    tap.messages("depot", "Deliver")     # how many packets each message carried
    tap.calls("depot")                   # how often each RPC was called

A `sitecustomize` on the stack's path wraps the two modules as they are imported; every message
appends a line to the tap's file. What is wrapped behaves as before.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

_PROGRAM = '''
"""Made by tests/wiretap.py."""
import importlib.abc, importlib.machinery, inspect, json, sys

def note(pipeline, what, size):
    # Opened anew: a descriptor would not outlive the fork of a pipeline.
    with open({file!r}, "ab", buffering=0) as file:
        file.write((json.dumps([pipeline, what, size]) + "\\n").encode())


def handing(module):
    inner = module.HandOvers._answers

    def answers(self, pieces, request):
        note(self._name, "Deliver", len(request.hand_offs))
        return inner(self, pieces, request)

    module.HandOvers._answers = answers


def downstream(module):
    inner = module.Downstream._take

    def take(self, session, request):
        note(self._name, "DownstreamState", len(request.waits))
        return inner(self, session, request)

    module.Downstream._take = take


def asked(name, inner):
    async def call(self, request, context):
        note(self._process.name, "call " + name, 1)
        return await inner(self, request, context)

    return call


def streamed(name, inner):
    async def call(self, request, context):
        note(self._process.name, "call " + name, 1)
        async for reply in inner(self, request, context):
            yield reply

    return call


def servicer(module):
    for name in dir(module.PipelineServicer):
        inner = getattr(module.PipelineServicer, name)
        if not name[0].isupper() or not callable(inner):
            continue

        wrap = streamed if inspect.isasyncgenfunction(inner) else asked
        setattr(module.PipelineServicer, name, wrap(name, inner))


WRAPPED = {{
    "pipo_runner.pipeline.intake.handing": handing,
    "pipo_runner.pipeline.delivery.downstream": downstream,
    "pipo_runner.pipeline.servicer": servicer,
}}


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        wrap = WRAPPED.get(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path) if wrap else None
        if spec is not None:
            inner = spec.loader.exec_module

            def exec_module(module):
                inner(module)
                wrap(module)

            spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
'''


class Wiretap:
    """What came to the pipelines of one stack, kept in a file below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "wiretap"
        path = folder / "tapped"
        path.mkdir(parents=True)
        (path / "sitecustomize.py").write_text(_PROGRAM.format(file=str(self._file)))
        self.env = {"PYTHONPATH": os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")])}

    def _lines(self) -> list[tuple[str, str, int]]:
        if not self._file.exists():
            return []
        return [tuple(json.loads(line)) for line in self._file.read_text().splitlines()]

    def messages(self, pipeline: str, what: str) -> list[int]:
        """The items of each message of a stream, in order."""
        return [size for name, kind, size in self._lines() if (name, kind) == (pipeline, what)]

    def calls(self, pipeline: str) -> Counter[str]:
        """How often each RPC of a pipeline was called."""
        return Counter(
            kind.removeprefix("call ")
            for name, kind, _ in self._lines()
            if name == pipeline and kind.startswith("call ")
        )
