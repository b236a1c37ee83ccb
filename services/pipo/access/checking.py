"""`check` of a pipeline's text, as findings in a reply."""

from __future__ import annotations

import asyncio

from pipo.home import Home
from pipo.rpc import to_proto
from pipo.rpc.stubs import pipo_pb2

# How the findings name a text that came without a name.
UNNAMED = "pipeline.pipo"


async def check_text(request: pipo_pb2.CheckRequest, home: Home) -> pipo_pb2.CheckReply:
    """Every finding of one text; `ok` when none is an error. Runs on a thread."""
    return await asyncio.to_thread(_check, request, home)


def _check(request: pipo_pb2.CheckRequest, home: Home) -> pipo_pb2.CheckReply:
    # The language and the manifests cost most commands, which check nothing, 0.1 s at start.
    from pipo.connectors.registry import manifests
    from pipo.lang.check import Source, check

    source = Source(text=request.source, file=request.file or UNNAMED)
    # The text names files as it likes, and its sender may know less than this process can read.
    (report,) = check([source], manifests(), home.root, quote=False)
    return pipo_pb2.CheckReply(
        ok=not any(finding.severity == "error" for finding in report.findings),
        diagnostics=[to_proto.diagnostic(finding) for finding in report.findings],
        not_imported=report.not_imported,
    )
